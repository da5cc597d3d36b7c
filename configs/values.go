package configs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/serverurl"
)

// value is a field of a Config that is read and written as text.
type value interface {
	// set parses raw, which is a string or a YAML value.
	set(raw any) error
	// text returns the canonical form. set accepts it and produces the same value.
	text() string
	// check returns an error if the value of the field is out of range.
	check() error
}

// problem is an error whose value is separate from its text, because secrets must not appear.
type problem struct{ value, text string }

func (p *problem) Error() string { return fmt.Sprintf("%.100q %s", p.value, p.text) }

func wrong(value, format string, args ...any) error {
	return &problem{value, fmt.Sprintf(format, args...)}
}

// codec reads, writes and checks one value of type T. The errors of read and check do not contain the value.
type codec[T any] struct {
	read  func(string) (T, error)
	write func(T) string
	check func(T) error // nil if every value is valid
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

func (o one[T]) check() error { return o.checkValue(*o.at) }

// many is a field with a list of values. Its form is a YAML list, or text with commas.
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

// list marks the field as a list, for the example file.
func (m many[T]) list() {}

func (m many[T]) check() error {
	for _, v := range *m.at {
		if err := m.checkValue(v); err != nil {
			return err
		}
	}
	return nil
}

func (c codec[T]) checkValue(v T) error {
	if c.check == nil {
		return nil
	}
	err := c.check(v)
	if _, whole := errors.AsType[*serverurl.ParameterError](err); err != nil && !whole { // such an error names the problem itself
		return wrong(c.write(v), "%s", err)
	}
	return err
}

func scalar(raw any) (string, error) {
	switch v := raw.(type) {
	case string:
		return strings.TrimSpace(v), nil
	case float64: // YAML parses 1e6 as a float
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case int, int64, uint64, bool:
		return fmt.Sprint(v), nil
	case []any:
		return "", wrong("a list", "is not allowed here; give one value")
	case map[string]any:
		return "", wrong("a map", "is not allowed here; give one value")
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
		return nil, wrong("a map", "is not allowed here; give a list")
	}
	text, err := scalar(raw)
	return []string{text}, err
}

// fields splits text at commas. It trims spaces and drops empty items.
func fields(text string) []string {
	items := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// plain is a codec of text. check returns an error for invalid text.
func plain[T ~string](check func(T) error) codec[T] {
	return codec[T]{
		read:  func(s string) (T, error) { return T(s), nil },
		write: func(v T) string { return string(v) },
		check: check,
	}
}

// optional is like plain, and also accepts the empty text.
func optional(check func(string) error) codec[string] {
	return plain(func(text string) error {
		if text == "" {
			return nil
		}
		return check(text)
	})
}

// yesNo is a codec of true and false.
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

// number is a codec of whole numbers in a range.
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
		check: func(n int) error {
			if n < low || n > high {
				return fmt.Errorf("must be between %d and %d", low, high)
			}
			return nil
		},
	}
}

// percent is a codec of whole percentages. It reads 70 and 70%, and writes 70%.
func percent() codec[int] {
	return codec[int]{
		read: func(s string) (int, error) {
			n, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
			if err != nil {
				return 0, errors.New("is not a whole percentage like 70%")
			}
			return n, nil
		},
		write: func(n int) string { return strconv.Itoa(n) + "%" },
		check: func(n int) error {
			if n < 0 || n > 100 {
				return errors.New("must be between 0% and 100%")
			}
			return nil
		},
	}
}

// decimal is a codec of numbers in a range.
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
		check: func(f float64) error {
			if !(f >= low && f <= high) { // false for NaN
				return fmt.Errorf("must be between %s and %s", format(low), format(high))
			}
			return nil
		},
	}
}

// duration is a codec of durations from low to ten years. Sums of such durations do not overflow.
func duration(low time.Duration) codec[time.Duration] { return span(low, holdfast.MaxDuration) }

// span is a codec of durations in a range.
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
		check: func(d time.Duration) error {
			if d < low || d > high {
				return fmt.Errorf("must be between %s and %s", shorten(low.String()), shorten(high.String()))
			}
			return nil
		},
	}
}

// shorten converts 168h0m0s to 168h.
func shorten(text string) string {
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
