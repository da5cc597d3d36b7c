package configs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// value is one field of a Config, read and written as text.
type value interface {
	// set parses what a layer gave: a string, or what YAML made of it.
	set(raw any) error
	// text is the canonical form; set reads it back to the same value.
	text() string
	// check reports whether what the field holds is out of its range.
	check() error
}

// problem is what is wrong with a value. The two are kept apart because the value
// of a secret must not be shown.
type problem struct{ value, text string }

func (p *problem) Error() string { return fmt.Sprintf("%.100q %s", p.value, p.text) }

func wrong(value, format string, args ...any) error {
	return &problem{value, fmt.Sprintf(format, args...)}
}

// codec is how one value of type T is read, written and judged. read and judge
// return the text of a problem, without the value.
type codec[T any] struct {
	read  func(string) (T, error)
	write func(T) string
	judge func(T) error // nil means everything is in range
}

// one is a field with a single value.
type one[T any] struct {
	at *T
	codec[T]
}

func (o one[T]) set(raw any) error {
	text, err := scalar(raw)
	if err != nil {
		return err
	}
	parsed, err := o.read(text)
	if err != nil {
		return wrong(text, "%s", err)
	}
	*o.at = parsed
	return nil
}

func (o one[T]) text() string { return o.write(*o.at) }

func (o one[T]) check() error { return o.verdict(*o.at) }

// many is a field with a list of values: a YAML list, or text with commas.
type many[T any] struct {
	at *[]T
	codec[T]
}

func (m many[T]) set(raw any) error {
	items, err := list(raw)
	if err != nil {
		return err
	}
	parsed := make([]T, 0, len(items))
	for _, item := range items {
		v, err := m.read(item)
		if err != nil {
			return wrong(item, "%s", err)
		}
		parsed = append(parsed, v)
	}
	*m.at = parsed
	return nil
}

func (m many[T]) text() string {
	items := make([]string, len(*m.at))
	for i, v := range *m.at {
		items[i] = m.write(v)
	}
	return strings.Join(items, ",")
}

// list marks the field as a list for the example file.
func (m many[T]) list() {}

func (m many[T]) check() error {
	for _, v := range *m.at {
		if err := m.verdict(v); err != nil {
			return err
		}
	}
	return nil
}

func (c codec[T]) verdict(v T) error {
	if c.judge == nil {
		return nil
	}
	if err := c.judge(v); err != nil {
		return wrong(c.write(v), "%s", err)
	}
	return nil
}

func scalar(raw any) (string, error) {
	switch v := raw.(type) {
	case string:
		return strings.TrimSpace(v), nil
	case float64: // 1e6 is a whole number to whoever wrote it
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case int, int64, uint64, bool:
		return fmt.Sprint(v), nil
	case []any:
		return "", wrong("a list", "stands where one value belongs")
	case map[string]any:
		return "", wrong("a map", "stands where one value belongs")
	}
	return "", wrong(fmt.Sprint(raw), "is not text or a number; quote it")
}

func list(raw any) ([]string, error) {
	switch v := raw.(type) {
	case string:
		return fields(v), nil
	case []any:
		items := make([]string, 0, len(v))
		for _, item := range v {
			text, err := scalar(item)
			if err != nil {
				return nil, err
			}
			items = append(items, text)
		}
		return items, nil
	case map[string]any:
		return nil, wrong("a map", "stands where a list belongs")
	}
	text, err := scalar(raw)
	return []string{text}, err
}

// fields splits text at commas; spaces around items and empty items do not count.
func fields(text string) []string {
	items := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// plain is text for which judge, if there is one, says what is allowed.
func plain(judge func(string) error) codec[string] {
	return codec[string]{
		read:  func(s string) (string, error) { return s, nil },
		write: func(s string) string { return s },
		judge: judge,
	}
}

// yesNo is true or false.
func yesNo() codec[bool] {
	return codec[bool]{
		read: func(s string) (bool, error) {
			if s != "true" && s != "false" {
				return false, errors.New("is neither true nor false")
			}
			return s == "true", nil
		},
		write: strconv.FormatBool,
	}
}

// number is a whole number in a range.
func number(low, high int) codec[int] {
	return codec[int]{
		read: func(s string) (int, error) {
			n, err := strconv.Atoi(s)
			if err != nil {
				return 0, errors.New("is not a whole number")
			}
			return n, nil
		},
		write: strconv.Itoa,
		judge: func(n int) error {
			if n < low || n > high {
				return fmt.Errorf("must be between %d and %d", low, high)
			}
			return nil
		},
	}
}

// decimal is a number in a range.
func decimal(low, high float64) codec[float64] {
	format := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	return codec[float64]{
		read: func(s string) (float64, error) {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return 0, errors.New("is not a number")
			}
			return f, nil
		},
		write: format,
		judge: func(f float64) error {
			if !(f >= low && f <= high) { // NaN is neither
				return fmt.Errorf("must be between %s and %s", format(low), format(high))
			}
			return nil
		},
	}
}

// duration is a length of time from low to ten years, far from where sums of durations
// overflow.
func duration(low time.Duration) codec[time.Duration] { return span(low, 10*365*24*time.Hour) }

// span is a length of time in a range.
func span(low, high time.Duration) codec[time.Duration] {
	return codec[time.Duration]{
		read: func(s string) (time.Duration, error) {
			d, err := time.ParseDuration(s)
			if err != nil {
				return 0, errors.New("is not a duration like 10s or 2h")
			}
			return d, nil
		},
		write: func(d time.Duration) string { return shorten(d.String()) },
		judge: func(d time.Duration) error {
			if d < low || d > high {
				return fmt.Errorf("must be between %s and %s", shorten(low.String()), shorten(high.String()))
			}
			return nil
		},
	}
}

// shorten turns Go's 168h0m0s into the 168h a person writes.
func shorten(text string) string {
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
