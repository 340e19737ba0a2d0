# The page for browsers: web/, bundled by esbuild with the libraries of Debian's packages, compressed, and put into the
# program by page_files.c. No Node is needed.
#
# MO_PAGE: AUTO makes it where esbuild and the libraries are; ON insists; OFF leaves it out.
target_sources(mo_server PRIVATE server/status/page_files.c server/status/page.c)
set(MO_PAGE AUTO CACHE STRING "make the page for browsers a part of the program: AUTO, ON or OFF")
set_property(CACHE MO_PAGE PROPERTY STRINGS AUTO ON OFF)
if(MO_PAGE)
  set(nodejs /usr/share/nodejs)
  set(katex /usr/share/javascript/katex/katex.mjs)
  find_program(MO_ESBUILD esbuild NO_CMAKE_FIND_ROOT_PATH)
  find_program(MO_GZIP gzip NO_CMAKE_FIND_ROOT_PATH)
  set(missing "")
  foreach(pair "esbuild|${MO_ESBUILD}" "gzip|${MO_GZIP}" "node-marked|${nodejs}/marked/lib/marked.esm.js"
          "node-highlight.js|${nodejs}/highlight.js/lib/highlight.js"
          "libjs-katex|${katex}"
          # Their notices go with them.
          "node-marked|/usr/share/doc/node-marked/copyright" "node-highlight.js|/usr/share/doc/node-highlight.js/copyright"
          "libjs-katex|/usr/share/doc/libjs-katex/copyright")
    string(REGEX REPLACE "\\|.*" "" package "${pair}")
    string(REGEX REPLACE ".*\\|" "" file "${pair}")
    if(NOT EXISTS "${file}")
      list(APPEND missing ${package})
    endif()
  endforeach()
  if(missing AND NOT MO_PAGE STREQUAL AUTO)
    message(FATAL_ERROR "MO_PAGE=${MO_PAGE}, but these packages are missing: ${missing}")
  endif()
endif()
if(MO_PAGE AND NOT missing)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/page)
  set(web ${PROJECT_SOURCE_DIR}/web)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${web}/*.ts ${web}/*.css ${web}/*.html ${web}/*.svg)
  set(bundles page.js code.js math.js page.css)
  list(TRANSFORM bundles PREPEND ${folder}/ OUTPUT_VARIABLE outputs)
  # The newest syntax that browsers of the last three years read, so that nothing is translated.
  add_custom_command(OUTPUT ${outputs} ${folder}/index.html ${folder}/icon.svg ${folder}/page.js.gz ${folder}/code.js.gz
                            ${folder}/math.js.gz ${folder}/page.css.gz ${folder}/icon.svg.gz ${folder}/notices.txt.gz
    COMMAND ${CMAKE_COMMAND} -E env NODE_PATH=${nodejs} ${MO_ESBUILD} ${web}/page.ts ${web}/code.ts ${web}/math.ts ${web}/page.css
            --bundle --minify --format=esm --charset=utf8 --legal-comments=none --target=es2022 --log-level=warning
            --alias:katex=${katex} --outdir=${folder}
    COMMAND ${CMAKE_COMMAND} -E copy ${web}/index.html ${web}/icon.svg ${folder}
    COMMAND ${MO_GZIP} -9 -n -k -f page.js code.js math.js page.css icon.svg notices.txt
    WORKING_DIRECTORY ${folder} DEPENDS ${sources} ${folder}/notices.txt VERBATIM COMMENT "esbuild page")
  file(MAKE_DIRECTORY ${folder})
  # What the licences of the libraries ask for, once for all bundles: esbuild leaves their comments out.
  set(notices "The page of Moraine has parts of these libraries in it, from Debian's packages, whose copyright files follow.\n")
  foreach(package node-marked node-highlight.js libjs-katex)
    file(READ /usr/share/doc/${package}/copyright text)
    string(APPEND notices "\n==== ${package} ====\n\n${text}")
  endforeach()
  set(written "")
  if(EXISTS ${folder}/notices.txt)
    file(READ ${folder}/notices.txt written)
  endif()
  if(NOT "x${written}" STREQUAL "x${notices}") # so that nothing is built anew for it
    file(WRITE ${folder}/notices.txt "${notices}")
  endif()
  install(FILES ${folder}/notices.txt DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/moraine)
  set_property(SOURCE server/status/page_files.c PROPERTY OBJECT_DEPENDS ${folder}/index.html ${folder}/page.js.gz ${folder}/code.js.gz
               ${folder}/math.js.gz ${folder}/page.css.gz ${folder}/icon.svg.gz ${folder}/notices.txt.gz)
  set_property(SOURCE server/status/page_files.c PROPERTY COMPILE_DEFINITIONS "MO_PAGE_FOLDER=\"${folder}\"")
  set_property(GLOBAL PROPERTY MO_PAGE_MADE ON)
  message(STATUS "page: ${MO_ESBUILD}")
elseif(MO_PAGE)
  list(REMOVE_DUPLICATES missing)
  string(REPLACE ";" ", " missing "${missing}")
  message(STATUS "page: none, ${missing} is missing")
else()
  message(STATUS "page: none")
endif()
