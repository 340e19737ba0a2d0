# fish completion for moraine: commands, then each command's own options as its --help lists them.

function __moraine_commands
    moraine --help | string match -r '^  [a-z]+  +.*' | string replace -r '^  ([a-z]+) +' '$1\t'
end

function __moraine_options
    moraine (commandline -opc)[2] --help 2>/dev/null | string match -ra -- '--[a-z-]+' | sort -u
end

# Is the command line at the value of one of these options?
function __moraine_at
    set -l words (commandline -opc)
    contains -- $words[-1] $argv
end

# Is the command one of these?
function __moraine_command
    set -l words (commandline -opc)
    test (count $words) -gt 1; and contains -- $words[2] $argv
end

set -l formats f32 f16 bf16 q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 iq4_nl iq4_xs mxfp4 nvfp4 q3_k q2_k
set -l small_formats iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s tq1_0 tq2_0 q1_0 q2_0
set -l shapes '(moraine synth --list 2>/dev/null | string match -rg "^([a-z0-9.-]+) ")'

complete -c moraine -n 'test (count (commandline -opc)) -eq 1' -f -a '(__moraine_commands)'
complete -c moraine -n 'test (count (commandline -opc)) -eq 1' -f -a '--help --version'
complete -c moraine -n 'test (count (commandline -opc)) -gt 1; and string match -q -- "-*" (commandline -ct)' -f -a '(__moraine_options)'
complete -c moraine -n '__moraine_command quantize; and __moraine_at --experts --rest --output --embedding' -f -a "$formats"
complete -c moraine -n '__moraine_command synth; and __moraine_at --type --experts' -f -a "$formats $small_formats"
complete -c moraine -n '__moraine_at --moe-hot-cache-weighting' -f -a 'flat balanced pressure smooth time'
complete -c moraine -n '__moraine_at --policy' -f -a 'auto lru lfu priority'
complete -c moraine -n '__moraine_at --policy; and __moraine_command replay' -f -a 'optimum all'
complete -c moraine -n '__moraine_at --predict' -f -a 'on off'
complete -c moraine -n '__moraine_at --io' -f -a 'direct cached auto'
complete -c moraine -n '__moraine_at --device' -f -a 'none cuda auto sim'
complete -c moraine -n '__moraine_at --postfetch' -f -a 'down expert auto off'
complete -c moraine -n '__moraine_at --divide' -f -a 'layers experts auto'
complete -c moraine -n '__moraine_at --prompt-precision' -f -a 'exact bf16'
complete -c moraine -n '__moraine_at --log-format' -f -a 'text json'
complete -c moraine -n '__moraine_at --log-level' -f -a 'error warning info debug'
complete -c moraine -n '__moraine_at --kv' -f -a 'i16 f32 q8_0'
complete -c moraine -n '__moraine_at --profile --history' -a 'off'
complete -c moraine -n '__moraine_command synth; or __moraine_at --synthetic' -f -a $shapes
complete -c moraine -n '__moraine_command help' -f -a '(__moraine_commands)'
complete -c moraine -n '__moraine_command run chat serve plan bench eval trace tokenize inspect show doctor' -a '(moraine list 2>/dev/null | string match -rg "^([^ ]+)")'
complete -c moraine -n '__moraine_command rm stop' -f -a '(moraine list 2>/dev/null | string match -rg "^([^ ]+)")'
