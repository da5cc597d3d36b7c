package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// field describes one field of an expression.
type field struct {
	name      string
	low, high int      // the lowest and the highest value of *
	last      int      // the highest value that can be written
	names     []string // of the values from low
}

var fields = []field{
	{name: "second", high: 59, last: 59},
	{name: "minute", high: 59, last: 59},
	{name: "hour", high: 23, last: 23},
	{name: "day of month", low: 1, high: 31, last: 31},
	{name: "month", low: 1, high: 12, last: 12, names: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{name: "day of week", high: 6, last: 7, names: strings.Fields("sun mon tue wed thu fri sat")},
}

// macros are the names that replace all fields.
var macros = []struct{ name, text string }{
	{"@hourly", "0 * * * *"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@weekly", "0 0 * * 0"},
	{"@monthly", "0 0 1 * *"},
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
}

// Parse returns the expression that the text describes; see the comment of the package for the language. The error
// wraps [holdfast.ErrInvalid]. It says which field is wrong, and which values it may have. An expression that never
// matches, such as 0 0 31 2 *, is an error too.
func Parse(text string) (Expression, error) {
	e, err := parse(text)
	if err != nil {
		return Expression{}, fmt.Errorf("%w: cron expression %.100q: %w", holdfast.ErrInvalid, text, err)
	}
	return e, nil
}

func parse(text string) (Expression, error) {
	parts := strings.Fields(text)
	if len(parts) > 0 && strings.HasPrefix(parts[0], "@") {
		replaced, err := expand(parts)
		if err != nil {
			return Expression{}, err
		}
		parts = strings.Fields(replaced)
	}
	if len(parts) > 0 && strings.Contains(parts[0], "TZ=") {
		return Expression{}, fmt.Errorf("the time zone is not a part of the expression; set the time zone of the schedule")
	}
	switch len(parts) {
	case 5:
		parts = slices.Insert(parts, 0, "0")
	case 6:
	default:
		return Expression{}, fmt.Errorf(
			"%d fields are not 5 (minute, hour, day of month, month, day of week) or 6 (with the second first)", len(parts))
	}
	var masks [6]uint64
	var open [6]bool
	for i, f := range fields {
		var err error
		if masks[i], open[i], err = f.parse(parts[i]); err != nil {
			return Expression{}, err
		}
	}
	masks[5] = masks[5]&127 | masks[5]>>7 // 7 is Sunday, like 0
	e := Expression{
		second: masks[0], minute: masks[1], hour: masks[2], day: masks[3], month: masks[4], weekday: masks[5],
		openHour: open[2], eitherDay: !open[3] && !open[5],
	}
	if e.match(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Expression{}, fmt.Errorf("no date matches: none of the months has such a day")
	}
	return e, nil
}

// expand returns the fields that the name of a macro replaces.
func expand(parts []string) (string, error) {
	if strings.EqualFold(parts[0], "@every") {
		return "", fmt.Errorf("an interval is not a cron expression; give the interval of the schedule instead")
	}
	var known []string
	for _, macro := range macros {
		if len(parts) == 1 && strings.EqualFold(parts[0], macro.name) {
			return macro.text, nil
		}
		known = append(known, macro.name)
	}
	return "", fmt.Errorf("%.100q is not one of %s", strings.Join(parts, " "), strings.Join(known, ", "))
}

// parse returns the mask of the values in a list, and whether the field is open.
func (f field) parse(list string) (mask uint64, open bool, err error) {
	for element := range strings.SplitSeq(list, ",") {
		values, stepText, stepped := strings.Cut(element, "/")
		low, high, step := f.low, f.high, 1
		if values == "*" || values == "?" {
			open = true
		} else if low, high, err = f.values(values); err != nil {
			return 0, false, err
		} else if stepped && !strings.Contains(values, "-") {
			high = max(high, f.high) // 5/20 begins at 5
		}
		if stepped {
			if step, err = number(stepText); err != nil || step < 1 || step > f.last {
				return 0, false, fmt.Errorf("the step %.100q of the %s is not in 1 to %d", stepText, f.name, f.last)
			}
		}
		for n := low; n <= high; n += step {
			mask |= 1 << n
		}
	}
	return mask, open, nil
}

// values returns the ends of a range, or the same value twice.
func (f field) values(text string) (low, high int, err error) {
	from, to, ranged := strings.Cut(text, "-")
	if low, err = f.value(from); err != nil || !ranged {
		return low, low, err
	}
	if high, err = f.value(to); err != nil {
		return 0, 0, err
	}
	if low > high && high == 0 && f.last == 7 {
		high = 7 // such as fri-sun
	}
	if low > high {
		return 0, 0, fmt.Errorf("the range %.100q of the %s begins after its end; write %s-%d,%d-%s",
			text, f.name, from, max(low, f.high), f.low, to)
	}
	return low, high, nil
}

// value returns a value that is written as a number or a name.
func (f field) value(text string) (int, error) {
	if n := slices.Index(f.names, strings.ToLower(text)); n >= 0 {
		return f.low + n, nil
	}
	n, err := number(text)
	if err == nil && f.low <= n && n <= f.last {
		return n, nil
	}
	allowed := fmt.Sprintf("%d to %d", f.low, f.last)
	if f.names != nil {
		allowed += fmt.Sprintf(" or %s to %s", f.names[0], f.names[len(f.names)-1])
	}
	return 0, fmt.Errorf("the %s %.100q is not in %s", f.name, text, allowed)
}

// number returns a decimal number without a sign.
func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	return int(n), err
}
