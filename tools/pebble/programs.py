"""C generator: small correct functions and programs, plain or as ChatML.

Each template is one C function (or a few that belong together) with names,
types and layout left open.  Every document compiles as C11 without warnings
(gcc -Wall).  documents() is deterministic in its seed.
"""

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from chat import conversation


class Template(NamedTuple):
    family: str  # array and number templates can share one program
    names: str  # possible names of the function
    asks: str  # what a user wants, "|" between phrasings
    why: str  # one sentence of explanation
    includes: str
    code: str
    demo: str  # lines of main


T = Template
TEMPLATES = (
    # Arrays: $T element type, $N count type, $a array, $n count, $i index, $F printf format.
    T("array", "sum|array_sum|sum_array|total", "returns the sum of an array of $Ts|adds up all values of an array of $Ts", "It adds every element to a total that starts at zero.", "",
      "$T $f(const $T *$a, $N $n) {\n    $T $s = 0;\n    for ($N $i = 0; $i < $n; $i++) {\n        $s += $a[$i];\n    }\n    return $s;\n}\n", 'printf("sum: $F\\n", $f($a, $n));'),
    T("array", "max_value|array_max|find_max|largest", "returns the largest value in an array of $Ts|finds the maximum of an array of $Ts", "It keeps the largest value seen so far; the array must not be empty.", "",
      "$T $f(const $T *$a, $N $n) {\n    $T $m = $a[0];\n    for ($N $i = 1; $i < $n; $i++) {\n        if ($a[$i] > $m) {\n            $m = $a[$i];\n        }\n    }\n    return $m;\n}\n", 'printf("max: $F\\n", $f($a, $n));'),
    T("array", "min_value|array_min|find_min|smallest", "returns the smallest value in an array of $Ts|finds the minimum of an array of $Ts", "It keeps the smallest value seen so far; the array must not be empty.", "",
      "$T $f(const $T *$a, $N $n) {\n    $T $m = $a[0];\n    for ($N $i = 1; $i < $n; $i++) {\n        if ($a[$i] < $m) {\n            $m = $a[$i];\n        }\n    }\n    return $m;\n}\n", 'printf("min: $F\\n", $f($a, $n));'),
    T("array", "mean|average|array_mean", "returns the mean of an array of $Ts|computes the average of an array of $Ts", "It divides the sum by the number of elements and returns 0 for an empty array.", "",
      "double $f(const $T *$a, $N $n) {\n    if ($n == 0) {\n        return 0.0;\n    }\n    double $s = 0.0;\n    for ($N $i = 0; $i < $n; $i++) {\n        $s += $a[$i];\n    }\n    return $s / $n;\n}\n", 'printf("mean: %g\\n", $f($a, $n));'),
    T("array", "count_value|count_equal|occurrences", "counts how often a value occurs in an array of $Ts", "It compares each element with the value and counts the matches.", "",
      "$N $f(const $T *$a, $N $n, $T $v) {\n    $N $c = 0;\n    for ($N $i = 0; $i < $n; $i++) {\n        if ($a[$i] == $v) {\n            $c++;\n        }\n    }\n    return $c;\n}\n", 'printf("count: %d\\n", (int)$f($a, $n, 3));'),
    T("array", "reverse_array|reverse|flip", "reverses an array of $Ts in place", "It swaps the first and the last element and moves towards the middle.", "",
      "void $f($T *$a, $N $n) {\n    for ($N $i = 0; $i < $n / 2; $i++) {\n        $T tmp = $a[$i];\n        $a[$i] = $a[$n - 1 - $i];\n        $a[$n - 1 - $i] = tmp;\n    }\n}\n", '$f($a, $n);\nprintf("first after reversing: $F\\n", $a[0]);'),
    T("array", "linear_search|find|index_of", "finds the index of a value in an array of $Ts|does a linear search in an array of $Ts", "It looks at one element after another and returns -1 when the value is not there.", "",
      "int $f(const $T *$a, int $n, $T $v) {\n    for (int $i = 0; $i < $n; $i++) {\n        if ($a[$i] == $v) {\n            return $i;\n        }\n    }\n    return -1;\n}\n", 'printf("index: %d\\n", $f($a, (int)$n, 7));'),
    T("array", "bubble_sort|sort|sort_array", "sorts an array of $Ts with bubble sort", "It swaps neighbours that are in the wrong order until the array is sorted.", "",
      "void $f($T *$a, $N $n) {\n    for ($N $i = 0; $i + 1 < $n; $i++) {\n        for ($N $j = 0; $j + 1 < $n - $i; $j++) {\n            if ($a[$j] > $a[$j + 1]) {\n                $T tmp = $a[$j];\n                $a[$j] = $a[$j + 1];\n                $a[$j + 1] = tmp;\n            }\n        }\n    }\n}\n", '$f($a, $n);\nprintf("smallest: $F\\n", $a[0]);'),
    T("array", "insertion_sort|sort|insert_sort", "sorts an array of $Ts with insertion sort", "It takes one element after another and moves it left to its place.", "",
      "void $f($T *$a, $N $n) {\n    for ($N $i = 1; $i < $n; $i++) {\n        $T $v = $a[$i];\n        $N $j = $i;\n        while ($j > 0 && $a[$j - 1] > $v) {\n            $a[$j] = $a[$j - 1];\n            $j--;\n        }\n        $a[$j] = $v;\n    }\n}\n", '$f($a, $n);\nprintf("smallest: $F\\n", $a[0]);'),
    T("array", "selection_sort|sort|select_sort", "sorts an array of $Ts with selection sort", "It finds the smallest remaining element and puts it at the front.", "",
      "void $f($T *$a, $N $n) {\n    for ($N $i = 0; $i + 1 < $n; $i++) {\n        $N best = $i;\n        for ($N $j = $i + 1; $j < $n; $j++) {\n            if ($a[$j] < $a[best]) {\n                best = $j;\n            }\n        }\n        $T tmp = $a[$i];\n        $a[$i] = $a[best];\n        $a[best] = tmp;\n    }\n}\n", '$f($a, $n);\nprintf("smallest: $F\\n", $a[0]);'),
    T("array", "is_sorted|sorted|in_order", "checks whether an array of $Ts is sorted", "It returns false as soon as an element is smaller than the one before it.", "stdbool.h",
      "bool $f(const $T *$a, $N $n) {\n    for ($N $i = 1; $i < $n; $i++) {\n        if ($a[$i] < $a[$i - 1]) {\n            return false;\n        }\n    }\n    return true;\n}\n", 'printf("sorted: %s\\n", $f($a, $n) ? "yes" : "no");'),
    T("array", "print_array|show|print_values", "prints an array of $Ts on one line", "It prints a space between the values and a newline at the end.", "stdio.h",
      'void $f(const $T *$a, $N $n) {\n    for ($N $i = 0; $i < $n; $i++) {\n        printf("%s$F", $i == 0 ? "" : " ", $a[$i]);\n    }\n    printf("\\n");\n}\n', "$f($a, $n);"),
    T("array", "fill_array|fill|set_all", "fills an array of $Ts with one value", "It writes the value into each element.", "",
      "void $f($T *$a, $N $n, $T $v) {\n    for ($N $i = 0; $i < $n; $i++) {\n        $a[$i] = $v;\n    }\n}\n", '$f($a, $n, 1);\nprintf("first: $F\\n", $a[0]);'),
    T("array", "copy_array|copy_values|copy", "copies an array of $Ts into another one", "Both arrays must have room for the same number of elements.", "",
      "void $f($T *dst, const $T *src, $N $n) {\n    for ($N $i = 0; $i < $n; $i++) {\n        dst[$i] = src[$i];\n    }\n}\n", '$T other[16];\n$f(other, $a, $n);\nprintf("copied: $F\\n", other[0]);'),
    T("array", "dot|dot_product|inner_product", "computes the dot product of two arrays of $Ts", "It multiplies the elements pair by pair and adds up the products.", "",
      "$T $f(const $T *x, const $T *y, $N $n) {\n    $T $s = 0;\n    for ($N $i = 0; $i < $n; $i++) {\n        $s += x[$i] * y[$i];\n    }\n    return $s;\n}\n", 'printf("dot: $F\\n", $f($a, $a, $n));'),
    T("array", "scale|multiply_all|scale_array", "multiplies each element of an array of $Ts by a factor", "It changes the array in place.", "",
      "void $f($T *$a, $N $n, $T factor) {\n    for ($N $i = 0; $i < $n; $i++) {\n        $a[$i] *= factor;\n    }\n}\n", '$f($a, $n, 2);\nprintf("first: $F\\n", $a[0]);'),
    T("array", "second_largest|second_max|runner_up", "returns the second largest value of an array of at least two $Ts", "It keeps the two largest values while it walks through the array.", "",
      "$T $f(const $T *$a, $N $n) {\n    $T first = $a[0] > $a[1] ? $a[0] : $a[1];\n    $T second = $a[0] > $a[1] ? $a[1] : $a[0];\n    for ($N $i = 2; $i < $n; $i++) {\n        if ($a[$i] > first) {\n            second = first;\n            first = $a[$i];\n        } else if ($a[$i] > second) {\n            second = $a[$i];\n        }\n    }\n    return second;\n}\n", 'printf("second: $F\\n", $f($a, $n));'),
    T("alone", "binary_search|find_sorted|search", "does a binary search in a sorted array of $Ts|finds a value in a sorted array of $Ts", "It halves the range in each step and returns -1 when the value is missing.", "",
      "int $f(const $T *$a, int $n, $T $v) {\n    int low = 0;\n    int high = $n - 1;\n    while (low <= high) {\n        int mid = low + (high - low) / 2;\n        if ($a[mid] == $v) {\n            return mid;\n        }\n        if ($a[mid] < $v) {\n            low = mid + 1;\n        } else {\n            high = mid - 1;\n        }\n    }\n    return -1;\n}\n", '$T $a[] = {1, 3, 5, 7, 9, 11};\nprintf("index: %d\\n", $f($a, 6, 7));'),
    # Numbers.
    T("number", "factorial|fact", "returns the factorial of a number|computes n factorial", "It multiplies all numbers from 2 up to n.", "",
      "unsigned long $f(unsigned $n) {\n    unsigned long $s = 1;\n    for (unsigned $i = 2; $i <= $n; $i++) {\n        $s *= $i;\n    }\n    return $s;\n}\n", 'printf("5! = %lu\\n", $f(5));'),
    T("number", "factorial|fact|factorial_rec", "computes the factorial of a number with recursion", "The factorial of n is n times the factorial of n - 1, and the factorial of 0 is 1.", "",
      "unsigned long $f(unsigned $n) {\n    if ($n == 0) {\n        return 1;\n    }\n    return $n * $f($n - 1);\n}\n", 'printf("6! = %lu\\n", $f(6));'),
    T("number", "fibonacci|fib", "returns the n-th Fibonacci number", "It keeps the last two numbers and adds them in each step.", "",
      "unsigned long $f(unsigned $n) {\n    unsigned long a = 0;\n    unsigned long b = 1;\n    for (unsigned $i = 0; $i < $n; $i++) {\n        unsigned long next = a + b;\n        a = b;\n        b = next;\n    }\n    return a;\n}\n", 'printf("fib(10) = %lu\\n", $f(10));'),
    T("number", "fibonacci|fib|fib_rec", "computes Fibonacci numbers with recursion", "Each number is the sum of the two before it; this is simple, but slow for large n.", "",
      "unsigned long $f(unsigned $n) {\n    return $n < 2 ? $n : $f($n - 1) + $f($n - 2);\n}\n", 'printf("fib(12) = %lu\\n", $f(12));'),
    T("number", "gcd|greatest_common_divisor", "returns the greatest common divisor of two numbers", "It uses the algorithm of Euclid: replace the pair by the smaller number and the remainder.", "",
      "$U $f($U a, $U b) {\n    while (b != 0) {\n        $U rest = a % b;\n        a = b;\n        b = rest;\n    }\n    return a;\n}\n", 'printf("gcd: $V\\n", $f(12, 18));'),
    T("number", "gcd|gcd_rec", "computes the greatest common divisor with recursion", "When b is 0 the answer is a; otherwise we go on with b and the remainder.", "",
      "$U $f($U a, $U b) {\n    return b == 0 ? a : $f(b, a % b);\n}\n", 'printf("gcd: $V\\n", $f(48, 36));'),
    T("alone", "lcm|least_common_multiple", "returns the least common multiple of two positive numbers", "It divides by the greatest common divisor before it multiplies.", "",
      "$U gcd($U a, $U b) {\n    return b == 0 ? a : gcd(b, a % b);\n}\n\n$U $f($U a, $U b) {\n    return a / gcd(a, b) * b;\n}\n", 'printf("lcm: $V\\n", $f(4, 6));'),
    T("number", "power|int_pow|raise", "raises a number to a power", "It multiplies the base with itself as often as the exponent says.", "",
      "$U $f($U base, unsigned exponent) {\n    $U $s = 1;\n    while (exponent > 0) {\n        $s *= base;\n        exponent--;\n    }\n    return $s;\n}\n", 'printf("2^8 = $V\\n", $f(2, 8));'),
    T("number", "fast_power|power|pow_fast", "computes a power quickly by squaring", "It squares the base and halves the exponent, so it needs few steps.", "",
      "$U $f($U base, unsigned exponent) {\n    $U $s = 1;\n    while (exponent > 0) {\n        if (exponent % 2 == 1) {\n            $s *= base;\n        }\n        base *= base;\n        exponent /= 2;\n    }\n    return $s;\n}\n", 'printf("3^5 = $V\\n", $f(3, 5));'),
    T("number", "is_prime|prime", "checks whether a number is prime|tells if a number is prime", "It tries every divisor up to the square root.", "stdbool.h",
      "bool $f(int $n) {\n    if ($n < 2) {\n        return false;\n    }\n    for (int $i = 2; $i <= $n / $i; $i++) {\n        if ($n % $i == 0) {\n            return false;\n        }\n    }\n    return true;\n}\n", 'printf("17 is %s\\n", $f(17) ? "prime" : "not prime");'),
    T("number", "is_even|even", "checks whether a number is even", "A number is even when the remainder of the division by 2 is 0.", "stdbool.h", "bool $f(int $n) {\n    return $n % 2 == 0;\n}\n", 'printf("%d\\n", $f(10));'),
    T("number", "clamp|limit|clamp_value", "clamps a $T to a range|limits a $T to a lower and an upper bound", "Values below the range become the lower bound, and values above it become the upper bound.", "",
      "$T $f($T $v, $T low, $T high) {\n    if ($v < low) {\n        return low;\n    }\n    if ($v > high) {\n        return high;\n    }\n    return $v;\n}\n", 'printf("$F\\n", $f(15, 0, 10));'),
    T("number", "max_of_two|larger|max2", "returns the larger of two $Ts", "It compares the two values and returns the larger one.", "", "$T $f($T a, $T b) {\n    return a > b ? a : b;\n}\n", 'printf("$F\\n", $f(3, 8));'),
    T("number", "min_of_two|smaller|min2", "returns the smaller of two $Ts", "It compares the two values and returns the smaller one.", "", "$T $f($T a, $T b) {\n    return a < b ? a : b;\n}\n", 'printf("$F\\n", $f(3, 8));'),
    T("number", "max_of_three|largest_of_three|max3", "returns the largest of three $Ts", "It starts with the first value and replaces it when another one is larger.", "",
      "$T $f($T a, $T b, $T c) {\n    $T $m = a;\n    if (b > $m) {\n        $m = b;\n    }\n    if (c > $m) {\n        $m = c;\n    }\n    return $m;\n}\n", 'printf("$F\\n", $f(3, 8, 5));'),
    T("number", "abs_value|absolute|magnitude", "returns the absolute value of a $S", "A negative value is turned into a positive one.", "", "$S $f($S x) {\n    return x < 0 ? -x : x;\n}\n", 'printf("$G\\n", $f(-4));'),
    T("number", "sign|sign_of", "returns the sign of a number as -1, 0 or 1", "It returns 1 for positive numbers, -1 for negative numbers and 0 for zero.", "",
      "int $f($S x) {\n    if (x > 0) {\n        return 1;\n    }\n    if (x < 0) {\n        return -1;\n    }\n    return 0;\n}\n", 'printf("%d\\n", $f(-7));'),
    T("number", "is_leap_year|leap_year|leap", "checks whether a year is a leap year", "A year is a leap year if 4 divides it, except for centuries that 400 does not divide.", "stdbool.h",
      "bool $f(int year) {\n    if (year % 400 == 0) {\n        return true;\n    }\n    if (year % 100 == 0) {\n        return false;\n    }\n    return year % 4 == 0;\n}\n", 'printf("2024: %s\\n", $f(2024) ? "leap year" : "normal year");'),
    T("number", "days_in_month|month_days", "returns the number of days in a month", "February has 29 days in a leap year; a month outside 1 to 12 gives 0.", "stdbool.h",
      "int $f(int year, int month) {\n    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};\n    if (month < 1 || month > 12) {\n        return 0;\n    }\n    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;\n    return month == 2 && leap ? 29 : days[month - 1];\n}\n", 'printf("%d days\\n", $f(2023, 4));'),
    T("number", "to_fahrenheit|celsius_to_fahrenheit|c_to_f", "converts Celsius to Fahrenheit", "It multiplies by 9, divides by 5 and adds 32.", "", "double $f(double celsius) {\n    return celsius * 9.0 / 5.0 + 32.0;\n}\n", 'printf("%g\\n", $f(20.0));'),
    T("number", "to_celsius|fahrenheit_to_celsius|f_to_c", "converts Fahrenheit to Celsius", "It subtracts 32, multiplies by 5 and divides by 9.", "", "double $f(double fahrenheit) {\n    return (fahrenheit - 32.0) * 5.0 / 9.0;\n}\n", 'printf("%g\\n", $f(68.0));'),
    T("number", "digit_sum|sum_of_digits|sum_digits", "returns the sum of the digits of a number", "It takes the last digit with % 10 and removes it with / 10.", "",
      "unsigned $f(unsigned $n) {\n    unsigned $s = 0;\n    while ($n > 0) {\n        $s += $n % 10;\n        $n /= 10;\n    }\n    return $s;\n}\n", 'printf("%u\\n", $f(1234));'),
    T("number", "count_digits|digits|digit_count", "counts the digits of a number", "It divides by ten until nothing is left.", "",
      "int $f(unsigned $n) {\n    int $c = 1;\n    while ($n >= 10) {\n        $n /= 10;\n        $c++;\n    }\n    return $c;\n}\n", 'printf("%d\\n", $f(5040));'),
    T("number", "count_bits|popcount|bits_set", "counts the bits that are set in an unsigned int", "Each step clears the lowest bit that is set.", "",
      "int $f(unsigned x) {\n    int $c = 0;\n    while (x != 0) {\n        x &= x - 1;\n        $c++;\n    }\n    return $c;\n}\n", 'printf("%d\\n", $f(255));'),
    T("number", "is_power_of_two|power_of_two", "checks whether a number is a power of two", "A power of two has exactly one bit set.", "stdbool.h", "bool $f(unsigned x) {\n    return x != 0 && (x & (x - 1)) == 0;\n}\n", 'printf("%d\\n", $f(64));'),
    T("number", "sum_to|sum_up_to|triangle", "returns the sum of the numbers from 1 to n", "It uses the formula n * (n + 1) / 2.", "", "unsigned long $f(unsigned long $n) {\n    return $n * ($n + 1) / 2;\n}\n", 'printf("%lu\\n", $f(100));'),
    T("number", "circle_area|area_of_circle", "returns the area of a circle", "The area is pi times the radius squared.", "", "double $f(double radius) {\n    const double pi = 3.14159265358979;\n    return pi * radius * radius;\n}\n", 'printf("%g\\n", $f(2.0));'),
    # Strings.
    T("number", "string_length|str_len|length", "returns the length of a string without strlen", "It counts characters until the zero byte at the end.", "stddef.h",
      "size_t $f(const char *$t) {\n    size_t $c = 0;\n    while ($t[$c] != '\\0') {\n        $c++;\n    }\n    return $c;\n}\n", 'printf("%zu\\n", $f("pebble"));'),
    T("number", "count_vowels|vowels", "counts the vowels in a string", "It compares each letter, in lower case, with the five vowels.", "ctype.h",
      "int $f(const char *$t) {\n    int $c = 0;\n    for (; *$t != '\\0'; $t++) {\n        switch (tolower((unsigned char)*$t)) {\n        case 'a':\n        case 'e':\n        case 'i':\n        case 'o':\n        case 'u':\n            $c++;\n            break;\n        default:\n            break;\n        }\n    }\n    return $c;\n}\n", 'printf("%d\\n", $f("river stones"));'),
    T("number", "is_palindrome|palindrome", "checks whether a string is a palindrome", "It compares the characters from both ends until they meet in the middle.", "stdbool.h string.h",
      "bool $f(const char *$t) {\n    size_t $n = strlen($t);\n    for (size_t $i = 0; $i < $n / 2; $i++) {\n        if ($t[$i] != $t[$n - 1 - $i]) {\n            return false;\n        }\n    }\n    return true;\n}\n", 'printf("%d\\n", $f("level"));'),
    T("number", "count_char|count_letter|char_count", "counts how often a character occurs in a string", "It walks through the string and counts the matches.", "",
      "int $f(const char *$t, char wanted) {\n    int $c = 0;\n    while (*$t != '\\0') {\n        if (*$t == wanted) {\n            $c++;\n        }\n        $t++;\n    }\n    return $c;\n}\n", 'printf("%d\\n", $f("banana", \'a\'));'),
    T("number", "count_words|words|word_count", "counts the words in a string", "A new word begins where a letter follows a space or the start of the string.", "ctype.h stdbool.h",
      "int $f(const char *$t) {\n    int $c = 0;\n    bool inside = false;\n    for (; *$t != '\\0'; $t++) {\n        if (isspace((unsigned char)*$t)) {\n            inside = false;\n        } else if (!inside) {\n            inside = true;\n            $c++;\n        }\n    }\n    return $c;\n}\n", 'printf("%d\\n", $f("the quick fox"));'),
    T("number", "starts_with|has_prefix", "checks whether a string starts with a prefix", "It compares only as many characters as the prefix has.", "stdbool.h string.h", "bool $f(const char *$t, const char *prefix) {\n    return strncmp($t, prefix, strlen(prefix)) == 0;\n}\n", 'printf("%d\\n", $f("moraine", "mor"));'),
    T("number", "is_digits|all_digits|only_digits", "checks whether a string has only digits", "It returns false for the first character that is not a digit, and for an empty string.", "ctype.h stdbool.h",
      "bool $f(const char *$t) {\n    if (*$t == '\\0') {\n        return false;\n    }\n    for (; *$t != '\\0'; $t++) {\n        if (!isdigit((unsigned char)*$t)) {\n            return false;\n        }\n    }\n    return true;\n}\n", 'printf("%d\\n", $f("2048"));'),
    T("number", "equal_strings|str_equal|same_text", "checks whether two strings are equal without strcmp", "It walks through both strings as long as the characters are the same.", "stdbool.h",
      "bool $f(const char *a, const char *b) {\n    while (*a != '\\0' && *a == *b) {\n        a++;\n        b++;\n    }\n    return *a == *b;\n}\n", 'printf("%d\\n", $f("stone", "stone"));'),
    T("number", "parse_number|to_int|parse_int", "turns a string of digits into an int", "It multiplies the value by ten and adds the next digit, until a character is not a digit.", "",
      "int $f(const char *$t) {\n    int $v = 0;\n    while (*$t >= '0' && *$t <= '9') {\n        $v = $v * 10 + (*$t - '0');\n        $t++;\n    }\n    return $v;\n}\n", 'printf("%d\\n", $f("42"));'),
    T("alone", "reverse_string|reverse|str_reverse", "reverses a string in place", "It swaps the characters from both ends towards the middle.", "string.h",
      "void $f(char *$t) {\n    size_t $n = strlen($t);\n    for (size_t $i = 0; $i < $n / 2; $i++) {\n        char tmp = $t[$i];\n        $t[$i] = $t[$n - 1 - $i];\n        $t[$n - 1 - $i] = tmp;\n    }\n}\n", 'char $t[] = "stone";\n$f($t);\nprintf("%s\\n", $t);'),
    T("alone", "to_upper|upper_case|make_upper", "changes a string to upper case", "It changes each letter with toupper.", "ctype.h",
      "void $f(char *$t) {\n    for (; *$t != '\\0'; $t++) {\n        *$t = (char)toupper((unsigned char)*$t);\n    }\n}\n", 'char word[] = "river";\n$f(word);\nprintf("%s\\n", word);'),
    T("alone", "trim_newline|strip_newline|chomp", "removes the newline at the end of a string", "It looks at the last character and replaces a newline by the zero byte.", "string.h",
      "void $f(char *$t) {\n    size_t $n = strlen($t);\n    if ($n > 0 && $t[$n - 1] == '\\n') {\n        $t[$n - 1] = '\\0';\n    }\n}\n", 'char line[] = "hello\\n";\n$f(line);\nprintf("[%s]\\n", line);'),
    T("alone", "replace_char|replace|swap_char", "replaces one character by another in a string", "It changes the string in place.", "",
      "void $f(char *$t, char from, char to) {\n    for (; *$t != '\\0'; $t++) {\n        if (*$t == from) {\n            *$t = to;\n        }\n    }\n}\n", "char word[] = \"a-b-c\";\n$f(word, '-', '+');\nprintf(\"%s\\n\", word);"),
    T("alone", "copy_string|str_copy|duplicate", "makes a copy of a string on the heap", "The caller must free the copy; the result is NULL when there is no memory.", "stdlib.h string.h",
      "char *$f(const char *$t) {\n    size_t $n = strlen($t) + 1;\n    char *copy = malloc($n);\n    if (copy != NULL) {\n        memcpy(copy, $t, $n);\n    }\n    return copy;\n}\n", 'char *copy = $f("pebble");\nif (copy != NULL) {\n    printf("%s\\n", copy);\n    free(copy);\n}'),
    T("alone", "swap|swap_values|exchange", "swaps two $Ts|exchanges the values of two $Ts", "It takes two pointers and uses one extra variable.", "", "void $f($T *a, $T *b) {\n    $T tmp = *a;\n    *a = *b;\n    *b = tmp;\n}\n", '$T x = 1;\n$T y = 2;\n$f(&x, &y);\nprintf("$F $F\\n", x, y);'),
    # Structures.
    T("alone", "distance|point_distance", "computes the distance between two points|defines a struct for a point and computes the distance of two points", "It uses the theorem of Pythagoras; link with -lm.", "math.h",
      "struct $P {\n    double x;\n    double y;\n};\n\ndouble $f(struct $P a, struct $P b) {\n    double dx = a.x - b.x;\n    double dy = a.y - b.y;\n    return sqrt(dx * dx + dy * dy);\n}\n", 'struct $P a = {0.0, 0.0};\nstruct $P b = {3.0, 4.0};\nprintf("%g\\n", $f(a, b));'),
    T("alone", "area|rect_area", "returns the area of a rectangle given as a struct", "The area is the width times the height.", "", "typedef struct {\n    $T width;\n    $T height;\n} rect;\n\n$T $f(const rect *r) {\n    return r->width * r->height;\n}\n", 'rect r = {3, 4};\nprintf("$F\\n", $f(&r));'),
    T("alone", "list_push|push_front|push", "pushes a value to the front of a linked list|adds a node to the front of a linked list", "It makes a new node that points to the old head; false means that there was no memory.", "stdbool.h stdlib.h",
      "struct node {\n    $T value;\n    struct node *next;\n};\n\nbool $f(struct node **head, $T $v) {\n    struct node *fresh = malloc(sizeof *fresh);\n    if (fresh == NULL) {\n        return false;\n    }\n    fresh->value = $v;\n    fresh->next = *head;\n    *head = fresh;\n    return true;\n}\n", 'struct node *head = NULL;\nif ($f(&head, 5)) {\n    printf("$F\\n", head->value);\n    free(head);\n}'),
    T("alone", "list_length|length|count_nodes", "returns the length of a linked list|counts the nodes of a linked list", "It follows the next pointers and counts until the end.", "stddef.h",
      "struct node {\n    $T value;\n    struct node *next;\n};\n\nsize_t $f(const struct node *head) {\n    size_t $c = 0;\n    for (const struct node *at = head; at != NULL; at = at->next) {\n        $c++;\n    }\n    return $c;\n}\n", 'struct node last = {2, NULL};\nstruct node first = {1, &last};\nprintf("%zu\\n", $f(&first));'),
    T("alone", "list_free|free_list|destroy_list", "frees a linked list|frees all nodes of a linked list", "It saves the next pointer before it frees a node.", "stdlib.h",
      "struct node {\n    $T value;\n    struct node *next;\n};\n\nvoid $f(struct node *head) {\n    while (head != NULL) {\n        struct node *next = head->next;\n        free(head);\n        head = next;\n    }\n}\n", 'struct node *head = malloc(sizeof *head);\nif (head != NULL) {\n    head->value = 1;\n    head->next = NULL;\n}\n$f(head);\nprintf("done\\n");'),
    T("alone", "list_reverse|reverse_list", "reverses a linked list", "It takes the nodes one by one and puts each in front of the result.", "stddef.h",
      "struct node {\n    $T value;\n    struct node *next;\n};\n\nstruct node *$f(struct node *head) {\n    struct node *result = NULL;\n    while (head != NULL) {\n        struct node *next = head->next;\n        head->next = result;\n        result = head;\n        head = next;\n    }\n    return result;\n}\n", 'struct node b = {2, NULL};\nstruct node a = {1, &b};\nstruct node *head = $f(&a);\nprintf("$F\\n", head->value);'),
    T("alone", "stack", "implements a small stack of $Ts with push and pop|writes a stack of $Ts", "Push and pop return false when the stack is full or empty.", "stdbool.h",
      "#define STACK_SIZE $K\n\nstruct stack {\n    $T items[STACK_SIZE];\n    int top;\n};\n\nbool stack_push(struct stack *s, $T $v) {\n    if (s->top == STACK_SIZE) {\n        return false;\n    }\n    s->items[s->top++] = $v;\n    return true;\n}\n\nbool stack_pop(struct stack *s, $T *out) {\n    if (s->top == 0) {\n        return false;\n    }\n    *out = s->items[--s->top];\n    return true;\n}\n", 'struct stack s = {.top = 0};\nstack_push(&s, 4);\n$T x;\nif (stack_pop(&s, &x)) {\n    printf("$F\\n", x);\n}'),
    T("alone", "queue", "implements a small queue of $Ts|writes a ring buffer of $Ts", "The items sit in a ring, so that adding and taking never move other items.", "stdbool.h",
      "#define QUEUE_SIZE $K\n\nstruct queue {\n    $T items[QUEUE_SIZE];\n    int head;\n    int count;\n};\n\nbool queue_put(struct queue *q, $T $v) {\n    if (q->count == QUEUE_SIZE) {\n        return false;\n    }\n    q->items[(q->head + q->count) % QUEUE_SIZE] = $v;\n    q->count++;\n    return true;\n}\n\nbool queue_get(struct queue *q, $T *out) {\n    if (q->count == 0) {\n        return false;\n    }\n    *out = q->items[q->head];\n    q->head = (q->head + 1) % QUEUE_SIZE;\n    q->count--;\n    return true;\n}\n", 'struct queue q = {.head = 0, .count = 0};\nqueue_put(&q, 1);\n$T x;\nif (queue_get(&q, &x)) {\n    printf("$F\\n", x);\n}'),
    T("alone", "matrix_add|add_matrices", "adds two matrices of $Ts", "It adds the elements at the same place in both matrices.", "",
      "#define SIZE $Q\n\nvoid $f($T a[SIZE][SIZE], $T b[SIZE][SIZE], $T out[SIZE][SIZE]) {\n    for (int row = 0; row < SIZE; row++) {\n        for (int col = 0; col < SIZE; col++) {\n            out[row][col] = a[row][col] + b[row][col];\n        }\n    }\n}\n", '$T a[SIZE][SIZE] = {{1}};\n$T b[SIZE][SIZE] = {{2}};\n$T c[SIZE][SIZE];\n$f(a, b, c);\nprintf("$F\\n", c[0][0]);'),
    T("alone", "matrix_multiply|multiply_matrices|mat_mul", "multiplies two matrices of $Ts", "Each element of the result is the product of a row and a column.", "",
      "#define SIZE $Q\n\nvoid $f($T a[SIZE][SIZE], $T b[SIZE][SIZE], $T out[SIZE][SIZE]) {\n    for (int row = 0; row < SIZE; row++) {\n        for (int col = 0; col < SIZE; col++) {\n            out[row][col] = 0;\n            for (int k = 0; k < SIZE; k++) {\n                out[row][col] += a[row][k] * b[k][col];\n            }\n        }\n    }\n}\n", '$T a[SIZE][SIZE] = {{1}};\n$T b[SIZE][SIZE] = {{2}};\n$T c[SIZE][SIZE];\n$f(a, b, c);\nprintf("$F\\n", c[0][0]);'),
    # Input and output.
    T("number", "print_table|times_table|multiplication_table", "prints a multiplication table", "One loop walks through the rows and the other through the columns.", "stdio.h",
      'void $f(int $n) {\n    for (int row = 1; row <= $n; row++) {\n        for (int col = 1; col <= $n; col++) {\n            printf("%4d", row * col);\n        }\n        printf("\\n");\n    }\n}\n', "$f(5);"),
    T("number", "countdown|count_down", "prints a countdown from n to 1", "It starts at n and goes down by one in each step.", "stdio.h", 'void $f(int $n) {\n    for (; $n > 0; $n--) {\n        printf("%d\\n", $n);\n    }\n}\n', "$f(3);"),
    T("number", "fizz_buzz|fizzbuzz", "prints FizzBuzz up to n", "It prints Fizz for multiples of 3, Buzz for multiples of 5 and FizzBuzz for multiples of both.", "stdio.h",
      'void $f(int $n) {\n    for (int $i = 1; $i <= $n; $i++) {\n        if ($i % 15 == 0) {\n            printf("FizzBuzz\\n");\n        } else if ($i % 3 == 0) {\n            printf("Fizz\\n");\n        } else if ($i % 5 == 0) {\n            printf("Buzz\\n");\n        } else {\n            printf("%d\\n", $i);\n        }\n    }\n}\n', "$f(15);"),
    T("number", "print_stars|triangle_of_stars|print_triangle", "prints a triangle of stars", "Row i has i stars.", "stdio.h", "void $f(int rows) {\n    for (int row = 1; row <= rows; row++) {\n        for (int col = 0; col < row; col++) {\n            putchar('*');\n        }\n        putchar('\\n');\n    }\n}\n", "$f(4);"),
    T("number", "count_lines|lines_in_file", "counts the lines of a file", "It reads one character after another and counts the newlines; -1 means that the file cannot be opened.", "stdio.h",
      "long $f(const char *path) {\n    FILE *file = fopen(path, \"r\");\n    if (file == NULL) {\n        return -1;\n    }\n    long $c = 0;\n    int ch;\n    while ((ch = fgetc(file)) != EOF) {\n        if (ch == '\\n') {\n            $c++;\n        }\n    }\n    fclose(file);\n    return $c;\n}\n", 'printf("%ld\\n", $f("notes.txt"));'),
    T("number", "print_file|show_file|cat_file", "reads a file line by line and prints it", "It reads with fgets into a buffer and returns -1 when the file cannot be opened.", "stdio.h",
      "int $f(const char *path) {\n    FILE *file = fopen(path, \"r\");\n    if (file == NULL) {\n        return -1;\n    }\n    char line[$B];\n    while (fgets(line, sizeof line, file) != NULL) {\n        fputs(line, stdout);\n    }\n    fclose(file);\n    return 0;\n}\n", 'if ($f("notes.txt") != 0) {\n    fprintf(stderr, "cannot open notes.txt\\n");\n}'),
)

TYPES = (("int", "%d"), ("int", "%d"), ("double", "%g"), ("long", "%ld"), ("unsigned", "%u"), ("float", "%g"))
WHOLE = (("int", "%d"), ("unsigned", "%u"), ("long", "%ld"), ("unsigned long", "%lu"))
SIGNED = (("int", "%d"), ("double", "%g"), ("long", "%ld"))
ASKS = ("Write a C function that {}.", "Can you write a C function that {}?", "Please write a function in C that {}.", "I need a C function that {}.", "Show me C code that {}.",
        "In C, write a function that {}.", "Could you give me a C function that {}?", "write a c function that {}", "How do I write a C function that {}?")
WORD = re.compile(r"\$([A-Za-z])")
HEAD = re.compile(r"^(\w.*\)) \{$", re.M)
ONE_LINE = re.compile(r"( *)((?:if|for|while) \(.*\)) \{\n( +[^\n{}]*;\n) *\}\n(?! *else)")


def names(r: random.Random, element: tuple[str, str]) -> dict[str, str]:
    """Names and types that a whole document shares."""
    size = r.choice(("size_t", "int", "int", "size_t"))
    return {"T": element[0], "F": element[1], "N": size, "a": r.choice(("a", "values", "numbers", "data", "items", "array", "v")), "n": r.choice(("n", "count", "len", "size")),
            "i": r.choice(("i", "i", "k", "pos")), "j": "j", "s": r.choice(("sum", "result", "total", "acc")), "m": r.choice(("best", "m", "value", "found")),
            "v": r.choice(("x", "wanted", "key", "value")), "c": r.choice(("hits", "found", "num", "c")), "t": r.choice(("s", "text", "str", "word")), "P": r.choice(("point", "vec2", "position")),
            "K": r.choice(("16", "32", "64", "100")), "Q": r.choice(("2", "3", "4")), "B": r.choice(("128", "256", "512", "1024"))}


class Writer:
    """One document's choices of names, types and layout."""

    def __init__(self, r: random.Random, family: str):
        self.r = r
        self.base = names(r, r.choice(TYPES))
        whole, signed = r.choice(WHOLE), r.choice(SIGNED)
        self.base.update(U=whole[0], V=whole[1], S=signed[0], G=signed[1])
        if family == "number":
            self.base.update(n=r.choice(("n", "n", "number")), c=r.choice(("count", "num", "c")))
        self.allman = r.random() < 0.3
        self.terse = r.random() < 0.25
        self.indent = r.choice(("    ", "    ", "    ", "  ", "\t"))
        self.comment = r.choice(("/* %s */", "// %s", "/* %s */", ""))

    def fill(self, text: str, function: str) -> str:
        base = self.base
        return WORD.sub(lambda m: function if m.group(1) == "f" else base[m.group(1)], text)

    def speak(self, text: str) -> str:
        kind = self.base["T"].replace("unsigned", "unsigned int")
        text = self.fill(text.replace("$T", kind), "")
        return re.sub(r"\ba (?=int|unsigned)", "an ", text)

    def layout(self, code: str) -> str:
        if self.terse:
            code = ONE_LINE.sub(r"\1\2\n\3", code)
        if self.allman:
            code = HEAD.sub(r"\1\n{", code)
        if self.indent != "    ":
            code = re.sub(r"^( {4})+", lambda m: self.indent * (len(m.group(0)) // 4), code, flags=re.M)
        return code

    def function(self, t: Template, name: str, commented: bool) -> str:
        code = self.fill(t.code, name)
        if commented and self.comment:
            text = self.speak(t.asks.split("|")[0])
            text = text[0].upper() + text[1:] + "."
            line = self.comment % self.r.choice((text, t.why))
            before, gap, last = code.rpartition("\n\n") if code.startswith(("struct", "typedef")) else ("", "", code)
            code = before + gap + line + "\n" + last
        return self.layout(code)


def includes(code: str, wanted: set[str]) -> str:
    if "size_t" in code and not wanted & {"stdio.h", "stdlib.h", "string.h", "stddef.h"}:
        wanted = wanted | {"stddef.h"}
    return "".join(f"#include <{name}>\n" for name in sorted(wanted))


def program(r: random.Random, main: bool) -> str:
    """A whole file: includes, functions and perhaps main."""
    family = r.choice(("array", "array", "number", "number", "alone", "alone"))
    w = Writer(r, family)
    pool = [t for t in TEMPLATES if t.family == family]
    chosen = r.sample(pool, 1 if family == "alone" else r.randint(1, 4))
    used: set[str] = set()
    functions, demos, wanted = [], [], {"stdio.h"} if main else set()
    for t in chosen:
        free = [n for n in t.names.split("|") if n not in used and n not in w.base.values()]
        if not free:
            continue
        name = r.choice(free)
        used.add(name)
        functions.append(w.function(t, name, True))
        demos.append(w.fill(t.demo, name))
        wanted |= set(t.includes.split())
    body = "\n".join(functions)
    if main:
        setup = w.fill("$T $a[] = {%s};\n$N $n = sizeof $a / sizeof $a[0];\n", "") % ", ".join(str(r.randint(1, 99)) for _ in range(r.randint(5, 8))) if family == "array" else ""
        lines = (setup + "\n".join(demos)).split("\n")
        body += "\n" + w.layout("int main(void) {\n" + "".join(f"    {line}\n" for line in lines) + "    return 0;\n}\n")
    head = includes(body, wanted)
    return head + ("\n" if head else "") + body


def answer(r: random.Random) -> str:
    t = r.choice(TEMPLATES)
    w = Writer(r, t.family)
    name = r.choice([n for n in t.names.split("|") if n not in w.base.values()] or t.names.split("|"))
    ask = r.choice(ASKS).format(w.speak(r.choice(t.asks.split("|"))))
    if t.names in ("stack", "queue"):
        ask = r.choice(("Write a {} of {}s in C.", "Implement a small {} of {}s in C.", "Can you write a {} for {}s in C?")).format(t.names, w.speak("$T"))
    code = w.function(t, name, r.random() < 0.3)
    head = includes(code, set(t.includes.split()))
    block = "```c\n" + head + ("\n" if head else "") + code + "```"
    pairs = [(ask, r.choice((f"{block}\n\n{t.why}", f"{block}\n\n{t.why}", f"Here is the function:\n\n{block}\n\n{t.why}", f"{t.why}\n\n{block}")))]
    if r.random() < 0.15:
        call = w.fill(t.demo, name)
        if t.family == "array":
            call = w.fill("$T $a[] = {4, 8, 3, 7, 1};\n$N $n = 5;\n", "") + call
        pairs.append((r.choice(("How do I use it?", "Can you show me how to call it?", "Show me an example.")), "For example:\n\n```c\n" + call + "\n```"))
    return conversation(pairs)


def documents(seed: int, count: int) -> Iterator[str]:
    """Yields count documents: half C files, half conversations."""
    rng = random.Random(seed)
    for _ in range(count):
        yield program(rng, rng.random() < 0.6) if rng.random() < 0.5 else answer(rng)
