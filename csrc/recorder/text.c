/* Text into a buffer of fixed size: printf without memory and without the host's locale. The caller
 * keeps errno the host's. */
#include "describe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void kdb_add(struct kdb_line *line, const char *format, ...) {
    va_list list;
    size_t used = line->used < line->room ? line->used : line->room;
    va_start(list, format);
    int n = vsnprintf(line->at + used, line->room - used, format, list);
    va_end(list);
    line->used += n > 0 ? (size_t)n : 0;
}

/* %g and strtod agree on the locale's decimal point; what is written has a dot. */
void kdb_add_real(struct kdb_line *line, double value) {
    char text[48], plain[48];
    bool single = (double)(float)value == value;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (back == value || (single && (float)back == (float)value))
            break;
    }
    size_t n = 0;
    for (const char *c = text; *c; c++) {
        bool known = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || *c == '-' || *c == '+';
        if (known)
            plain[n++] = *c;
        else if (!n || plain[n - 1] != '.') /* a point can take more than one byte */
            plain[n++] = '.';
    }
    plain[n] = 0;
    kdb_add(line, "%s", plain);
}
