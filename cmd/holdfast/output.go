package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"
)

// The formats of data on stdout.
const (
	asTable = "table" // for people
	asJSON  = "json"  // one value
	asJSONL = "jsonl" // one value a line
)

func outputFlag() cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: asTable,
		Usage: "write stdout as `FORMAT`: table, json or jsonl (one JSON value a line); default table"}
}

// format reads -o. Commands without the flag have the empty format.
func format(c *cli.Context) (string, error) {
	chosen := c.String("output")
	if chosen != "" && !slices.Contains([]string{asTable, asJSON, asJSONL}, chosen) || chosen == "" && c.IsSet("output") {
		return "", usageOf(commandName(c), "unknown output format %q; use table, json or jsonl", chosen)
	}
	return chosen, nil
}

// column is one column of a table of Ts.
type column[T any] struct {
	head string
	cell func(T) string
}

// list writes items in the format of -o, in the order of --sort. None at all is an empty array in JSON, and the
// message none for people.
func list[T any](t *tool, c *cli.Context, items []T, none string, columns ...column[T]) error {
	chosen, err := format(c)
	if err != nil {
		return err
	}
	if items, err = sorted(c, items, columns); err != nil {
		return err
	}
	switch {
	case chosen == asJSONL:
		return jsonLines(t.stdout, items)
	case chosen == asJSON:
		return jsonArray(t.stdout, items)
	}
	return people(t, items, none, columns)
}

// people writes items as a table.
func people[T any](t *tool, items []T, none string, columns []column[T]) error {
	if len(items) == 0 {
		t.say("%s", none)
		return nil
	}
	t.relative = isTerminal(t.stdout)
	head, rows := cells(items, columns)
	t.relative = false
	return t.table(head, rows)
}

func cells[T any](items []T, columns []column[T]) (head table.Row, rows []table.Row) {
	for _, col := range columns {
		head = append(head, col.head)
	}
	for _, item := range items {
		row := make(table.Row, len(columns))
		for i, col := range columns {
			row[i] = singleLine(col.cell(item))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// jsonLines writes one value a line.
func jsonLines[T any](w io.Writer, items []T) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	for _, item := range items {
		text.Reset()
		if err := encoder.Encode(item); err != nil {
			return err
		}
		if _, err := w.Write(withoutLoneSurrogates(text.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

// withoutLoneSurrogates replaces each lone surrogate escape in JSON by the escape of the replacement character. JSON
// allows a lone surrogate in a payload, but most programs refuse it.
func withoutLoneSurrogates(text []byte) []byte {
	unit := func(i int) rune { // of the escape at i
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return 0
		}
		n, err := strconv.ParseUint(string(text[i+2:i+6]), 16, 16)
		if err != nil {
			return 0
		}
		return rune(n)
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		first := unit(i)
		switch {
		case !utf16.IsSurrogate(first):
			i++ // what is escaped may be a backslash
		case utf16.DecodeRune(first, unit(i+6)) == unicode.ReplacementChar:
			copy(text[i:], `\ufffd`)
			i += 5
		default:
			i += 11
		}
	}
	return text
}

// jsonArray writes an array with one element a line, for eyes and diffs.
func jsonArray[T any](w io.Writer, items []T) error {
	var b strings.Builder
	b.WriteString("[")
	for i, item := range items {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  ")
		var element strings.Builder
		if err := jsonLines(&element, []T{item}); err != nil {
			return err
		}
		b.WriteString(strings.TrimSuffix(element.String(), "\n"))
	}
	if len(items) > 0 {
		b.WriteString("\n")
	}
	b.WriteString("]\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// singleLine makes text from anywhere fit for a terminal and a table: one line, and no
// control characters that could move the cursor or change what was printed before.
func singleLine(s string) string {
	return strings.Join(strings.Fields(printable(s)), " ")
}

// printable replaces all control characters but the newline.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// clipped cuts text to n runes.
func clipped(s string, n int) string {
	runes := []rune(singleLine(s))
	if len(runes) <= n {
		return string(runes)
	}
	return string(runes[:n-1]) + "…"
}

// stamp returns a time in RFC 3339 and UTC, or "" for the zero time. In a table on a terminal it returns how long ago
// the time was.
func (t *terminal) stamp(at time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case t.relative:
		return ago(time.Since(at))
	}
	return at.UTC().Format(time.RFC3339)
}

// both returns a time in RFC 3339, and on a terminal also how long ago it was.
func (t *terminal) both(at time.Time) string {
	text := t.stamp(at)
	if text != "" && isTerminal(t.stdout) {
		text += " (" + ago(time.Since(at)) + ")"
	}
	return text
}

// ago describes a past time, or a future one if d is negative, in one unit.
func ago(d time.Duration) string {
	if d < 0 {
		return "in " + unit(-d)
	}
	return unit(d) + " ago"
}

func unit(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// duration is a length of time in Go's form, without meaningless digits.
type duration time.Duration

func (d duration) String() string {
	whole := time.Duration(d)
	switch {
	case whole >= time.Minute:
		return whole.Round(time.Second).String()
	case whole >= time.Second:
		return whole.Round(100 * time.Millisecond).String()
	}
	return whole.Round(time.Millisecond).String()
}

// MarshalText implements encoding.TextMarshaler.
func (d duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// several is a number of things, for a sentence.
func several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// yes shows a flag in a table.
func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
