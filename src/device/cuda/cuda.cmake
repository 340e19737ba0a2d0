# The CUDA device. Its host side is plain C and part of every build: the driver is opened at run time. The kernels need
# nvcc; without it the program is the same but for them, and says so when a GPU is asked for.
#
# MO_CUDA decides which kernels are compiled (`make CUDA=...`):
#   none    no kernels
#   native  machine code for the GPUs of this machine
#   all     machine code for every GPU generation that nvcc knows from 7.5 on, and PTX of 8.0 and the newest for all others
#   LIST    machine code for these capabilities, as in 8.6,9.0; 8.6+PTX adds PTX, which the driver compiles for any GPU of that
#           capability or above when a device is opened
# Empty: native where there are a GPU and nvcc, otherwise none; always none for sanitizers and for other machines.
set(MO_CUDA "" CACHE STRING "CUDA kernels to compile: none, native, all, or a list of capabilities such as 8.6,9.0+PTX")
set(MO_CUDA_GENERATIONS 75 80 86 89 90 100 120)

# Of these machine code for 9.0 uses what that GPU alone has (wgmma); their PTX does without.
set(MO_CUDA_GROUP_FILES panel planes bf16)
# Those that take longest first, so that none is left to one core at the end.
set(MO_CUDA_FILES slab strip product experts panel bf16 planes heads attention pairs stream choose arrange latent index delta short_conv mamba adapt grouped floats restore router)

target_sources(mo_device PRIVATE
  device/cuda/driver.c device/cuda/images.c device/cuda/cuda.c device/cuda/status.c device/cuda/memory.c
  device/cuda/stream.c device/cuda/event.c device/cuda/kernels.c device/cuda/program.c
  device/cuda/counter.c device/cuda/blas.c device/cuda/launch.c)
foreach(file ${MO_CUDA_FILES})
  target_sources(mo_device PRIVATE device/cuda/launch_${file}.c)
endforeach()
target_link_libraries(mo_device PUBLIC ${CMAKE_DL_LIBS})

find_program(MO_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin
             NO_CMAKE_FIND_ROOT_PATH)

# mo_cuda_gpus(OUT): capabilities of this machine's GPUs, as in 8.6;9.0, each once; empty: there is none.
function(mo_cuda_gpus out)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(list "")
  if(failed EQUAL 0)
    string(REGEX MATCHALL "[0-9]+[.][0-9]+" list "${found}")
    list(REMOVE_DUPLICATES list)
  endif()
  set(${out} "${list}" PARENT_SCOPE)
endfunction()

# mo_cuda_known(OUT NUMBERS...): those that this nvcc compiles for.
function(mo_cuda_known out)
  execute_process(COMMAND ${MO_NVCC} --list-gpu-arch OUTPUT_VARIABLE listed ERROR_QUIET)
  set(list "")
  foreach(number ${ARGN})
    if(listed MATCHES "compute_${number}[^0-9]")
      list(APPEND list ${number})
    endif()
  endforeach()
  set(${out} "${list}" PARENT_SCOPE)
endfunction()

# mo_cuda_for_gpus(OUT NUMBERS...): what these GPUs run. One that is newer than nvcc gets PTX; one below 7.5 gets nothing.
function(mo_cuda_for_gpus out)
  mo_cuda_known(generations ${MO_CUDA_GENERATIONS})
  set(list "")
  foreach(number ${ARGN})
    mo_cuda_known(known ${number})
    if(known AND number GREATER_EQUAL 75)
      list(APPEND list ${number})
    elseif(number GREATER_EQUAL 75 AND generations)
      list(GET generations -1 newest)
      list(APPEND list ${newest}+PTX)
    endif()
  endforeach()
  list(REMOVE_DUPLICATES list)
  set(${out} "${list}" PARENT_SCOPE)
endfunction()

# MO_CUDA_LIST: what is compiled, as numbers (86) and PTX (86+PTX); empty: nothing. MO_CUDA_WHY: said when it is nothing.
set(MO_CUDA_LIST "")
set(MO_CUDA_WHY "as asked for")
if(MO_CUDA STREQUAL "" AND (MO_SANITIZE OR CMAKE_CROSSCOMPILING))
  set(MO_CUDA_WHY "not for sanitizers or other machines")
elseif(MO_CUDA STREQUAL "" OR MO_CUDA STREQUAL native)
  mo_cuda_gpus(gpus)
  if(gpus AND MO_NVCC)
    string(REPLACE "." "" numbers "${gpus}")
    mo_cuda_for_gpus(MO_CUDA_LIST ${numbers})
    set(MO_CUDA_WHY "kernels need capability 7.5, the GPU has ${gpus}")
  endif()
  if(MO_CUDA_LIST)
  elseif(MO_CUDA STREQUAL native)
    message(FATAL_ERROR "CUDA=native: nvidia-smi shows no GPU of capability 7.5 or above, or there is no nvcc; name capabilities, such as CUDA=8.6, or the path of nvcc with -DMO_NVCC=PATH")
  elseif(gpus AND MO_NVCC)
  elseif(gpus)
    set(MO_CUDA_WHY "there is a GPU but no nvcc; install CUDA's compiler and build again to use it")
  else()
    set(MO_CUDA_WHY "no GPU found; CUDA=all or a list such as CUDA=8.6 compiles them anyway")
  endif()
elseif(MO_CUDA STREQUAL all AND MO_NVCC)
  mo_cuda_known(MO_CUDA_LIST ${MO_CUDA_GENERATIONS})
  if(NOT MO_CUDA_LIST)
    message(FATAL_ERROR "CUDA=all: ${MO_NVCC} --list-gpu-arch lists no GPU from 7.5 on; use an nvcc of CUDA 11.5 or later, or name capabilities")
  endif()
  list(GET MO_CUDA_LIST -1 newest)
  list(TRANSFORM MO_CUDA_LIST APPEND "+PTX" REGEX "^(80|${newest})$")
elseif(NOT MO_CUDA MATCHES "^(none|all)$")
  string(REGEX REPLACE "[,; ]+" ";" words "${MO_CUDA}")
  foreach(word ${words})
    if(NOT word MATCHES "^([0-9]+)[.]?([0-9])([+]PTX)?$")
      message(FATAL_ERROR "CUDA=${MO_CUDA}: ${word} is not a capability; write none, native, all, or a list such as 8.6,9.0+PTX")
    endif()
    list(APPEND MO_CUDA_LIST "${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3}")
  endforeach()
endif()
if(NOT MO_NVCC AND NOT MO_CUDA MATCHES "^(none|native)?$")
  message(FATAL_ERROR "CUDA=${MO_CUDA}, but there is no nvcc; install it, or name it with -DMO_NVCC=PATH")
endif()

# mo_cuda_image(FILE IMAGE PTX GENCODES...): FILE.IMAGE.fatbin, and its line in the list of images.
# -fmad=false and the three after it: the contract of docs/numerics.md.
function(mo_cuda_image file image ptx)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/${file}.cu)
  set(quick "")
  if(MO_TEST_RUN) # nothing runs them there; half of the time is ptxas
    set(quick -Xptxas -O1)
  endif()
  set(output ${MO_CUDA_FOLDER}/${file}.${image}.fatbin)
  add_custom_command(OUTPUT ${output}
    COMMAND ${MO_NVCC} -fatbin -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
            --expt-relaxed-constexpr ${quick} -I ${PROJECT_SOURCE_DIR}/src -I ${PROJECT_SOURCE_DIR}/include ${ARGN}
            -MD -MF ${output}.d -MT ${output} ${source} -o ${output}
    DEPENDS ${source} DEPFILE ${output}.d VERBATIM COMMENT "nvcc ${file} (${image})")
  set_property(SOURCE device/cuda/images.c APPEND PROPERTY OBJECT_DEPENDS ${output})
  string(APPEND MO_CUDA_IMAGES "MO_IMAGE(${file}, ${image}, ${ptx})\n")
  set(MO_CUDA_IMAGES "${MO_CUDA_IMAGES}" PARENT_SCOPE)
endfunction()

if(MO_CUDA_LIST)
  set(MO_CUDA_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/device/cuda)
  set(real "")
  set(virtual "")
  foreach(capability ${MO_CUDA_LIST})
    string(REGEX REPLACE "[+]PTX" "" number ${capability})
    list(APPEND real -gencode arch=compute_${number},code=sm_${number})
    if(capability MATCHES PTX)
      list(APPEND virtual ${number})
    endif()
  endforeach()
  file(MAKE_DIRECTORY ${MO_CUDA_FOLDER})
  set(MO_CUDA_IMAGES "")
  foreach(file ${MO_CUDA_FILES})
    set(codes ${real})
    if(file IN_LIST MO_CUDA_GROUP_FILES)
      string(REPLACE "compute_90,code=sm_90" "compute_90a,code=sm_90a" codes "${real}")
    endif()
    mo_cuda_image(${file} native 0 -no-compress ${codes}) # a test reads the names of the kernels in it
    foreach(number ${virtual})
      mo_cuda_image(${file} ptx${number} ${number} -gencode arch=compute_${number},code=compute_${number})
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${MO_CUDA_FOLDER}/images.inc CONTENT "${MO_CUDA_IMAGES}" @ONLY)
  set_property(SOURCE device/cuda/images.c APPEND PROPERTY OBJECT_DEPENDS ${MO_CUDA_FOLDER}/images.inc)
  set_property(SOURCE device/cuda/images.c PROPERTY COMPILE_DEFINITIONS
    "MO_CUDA_FOLDER=\"${MO_CUDA_FOLDER}\"" "MO_CUDA_IMAGES=\"${MO_CUDA_FOLDER}/images.inc\"")
  set_property(GLOBAL PROPERTY MO_CUDA_KERNELS ON)
  string(REPLACE ";" " " MO_CUDA_FOR "${MO_CUDA_LIST}")
  string(REGEX REPLACE "([0-9]+)([0-9])" "\\1.\\2" MO_CUDA_FOR "${MO_CUDA_FOR}")
  message(STATUS "CUDA kernels: for ${MO_CUDA_FOR}")
else()
  set(MO_CUDA_FOR none)
  message(STATUS "CUDA kernels: none (${MO_CUDA_WHY})")
endif()
