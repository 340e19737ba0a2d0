# The CUDA device. Its host side is plain C and part of every build: the driver is opened at run time. The kernels need
# nvcc; without it the program is the same but for them, and says so when a GPU is asked for.
#
# MO_CUDA: AUTO compiles kernels where there is an nvcc, except for sanitizers and for other machines (their tests have
# no GPU, and the kernels would take longer than the rest); ON insists; OFF leaves them out.
set(MO_CUDA AUTO CACHE STRING "compile the CUDA kernels: AUTO, ON or OFF")
set_property(CACHE MO_CUDA PROPERTY STRINGS AUTO ON OFF)
# As CMAKE_CUDA_ARCHITECTURES: 90-real is machine code, 75-virtual is PTX, which the driver compiles for any GPU of that
# capability or above; 90 is both.
set(MO_CUDA_ARCHITECTURES "90-real;75-virtual;80-virtual" CACHE STRING "GPUs that the CUDA kernels are compiled for")

# Of these machine code for 9.0 uses what that GPU alone has (wgmma); their PTX does without.
set(MO_CUDA_GROUP_FILES panel planes bf16)
set(MO_CUDA_FILES product experts slab pairs stream choose arrange attention planes latent delta short_conv mamba adapt grouped floats panel bf16 strip restore router)

target_sources(mo_device PRIVATE
  device/cuda/driver.c device/cuda/images.c device/cuda/cuda.c device/cuda/status.c device/cuda/memory.c
  device/cuda/stream.c device/cuda/event.c device/cuda/kernels.c device/cuda/program.c
  device/cuda/counter.c device/cuda/blas.c device/cuda/launch.c)
foreach(file ${MO_CUDA_FILES})
  target_sources(mo_device PRIVATE device/cuda/launch_${file}.c)
endforeach()
target_link_libraries(mo_device PUBLIC ${CMAKE_DL_LIBS})

set(MO_CUDA_WANTED ${MO_CUDA})
if(MO_CUDA STREQUAL AUTO AND (MO_SANITIZE OR CMAKE_CROSSCOMPILING))
  set(MO_CUDA_WANTED OFF)
endif()
if(MO_CUDA_WANTED)
  find_program(MO_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin
               NO_CMAKE_FIND_ROOT_PATH)
  if(NOT MO_NVCC AND NOT MO_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "MO_CUDA=${MO_CUDA}, but there is no nvcc; name it with -DMO_NVCC=PATH")
  endif()
endif()

# mo_cuda_image(FILE IMAGE PTX GENCODES...): FILE.IMAGE.fatbin, and its line in the list of images.
# -fmad=false and the three after it: the contract of docs/numerics.md.
function(mo_cuda_image file image ptx)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/${file}.cu)
  set(output ${MO_CUDA_FOLDER}/${file}.${image}.fatbin)
  add_custom_command(OUTPUT ${output}
    COMMAND ${MO_NVCC} -fatbin -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
            --expt-relaxed-constexpr -I ${PROJECT_SOURCE_DIR}/src -I ${PROJECT_SOURCE_DIR}/include ${ARGN}
            -MD -MF ${output}.d -MT ${output} ${source} -o ${output}
    DEPENDS ${source} DEPFILE ${output}.d VERBATIM COMMENT "nvcc ${file} (${image})")
  set_property(SOURCE device/cuda/images.c APPEND PROPERTY OBJECT_DEPENDS ${output})
  string(APPEND MO_CUDA_LIST "MO_IMAGE(${file}, ${image}, ${ptx})\n")
  set(MO_CUDA_LIST "${MO_CUDA_LIST}" PARENT_SCOPE)
endfunction()

if(MO_CUDA_WANTED AND MO_NVCC)
  set(MO_CUDA_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/device/cuda)
  set(real "")
  set(virtual "")
  foreach(architecture ${MO_CUDA_ARCHITECTURES})
    if(NOT architecture MATCHES "^([0-9]+)(-real|-virtual)?$")
      message(FATAL_ERROR "MO_CUDA_ARCHITECTURES: ${architecture} is none; write 90, 90-real or 90-virtual")
    endif()
    if(NOT CMAKE_MATCH_2 STREQUAL "-virtual")
      list(APPEND real -gencode arch=compute_${CMAKE_MATCH_1},code=sm_${CMAKE_MATCH_1})
    endif()
    if(NOT CMAKE_MATCH_2 STREQUAL "-real")
      list(APPEND virtual ${CMAKE_MATCH_1})
    endif()
  endforeach()
  file(MAKE_DIRECTORY ${MO_CUDA_FOLDER})
  set(MO_CUDA_LIST "")
  foreach(file ${MO_CUDA_FILES})
    if(real) # not compressed: a test reads the names of the kernels in it
      set(codes ${real})
      if(file IN_LIST MO_CUDA_GROUP_FILES)
        string(REPLACE "compute_90,code=sm_90" "compute_90a,code=sm_90a" codes "${real}")
      endif()
      mo_cuda_image(${file} native 0 -no-compress ${codes})
    endif()
    foreach(number ${virtual})
      mo_cuda_image(${file} ptx${number} ${number} -gencode arch=compute_${number},code=compute_${number})
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${MO_CUDA_FOLDER}/images.inc CONTENT "${MO_CUDA_LIST}" @ONLY)
  set_property(SOURCE device/cuda/images.c APPEND PROPERTY OBJECT_DEPENDS ${MO_CUDA_FOLDER}/images.inc)
  set_property(SOURCE device/cuda/images.c PROPERTY COMPILE_DEFINITIONS
    "MO_CUDA_FOLDER=\"${MO_CUDA_FOLDER}\"" "MO_CUDA_IMAGES=\"${MO_CUDA_FOLDER}/images.inc\"")
  set_property(GLOBAL PROPERTY MO_CUDA_KERNELS ON)
  message(STATUS "CUDA kernels: ${MO_NVCC} for ${MO_CUDA_ARCHITECTURES}")
else()
  message(STATUS "CUDA kernels: none")
endif()
