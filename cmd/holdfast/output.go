package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/surface"
)

// The output formats.
const (
	asTable = "table"
	asJSON  = "json"  // one value
	asJSONL = "jsonl" // one value per line
	asCSV   = "csv"   // only for results of batches
)

func outputFlag() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: asTable,
		Usage: "output `FORMAT`: table, json (a list is an object, as in the HTTP API) or jsonl (one JSON value per line); default table"}}
}

// streamFlag is the flag -o of a command that writes any number of rows.
func streamFlag() []cli.Flag {
	return []cli.Flag{formatFlag{&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: asJSONL,
		Usage: "output `FORMAT`: jsonl (one JSON value per line) or csv; default jsonl"}, []string{asJSONL, asCSV}}}
}

// formatFlag is a flag -o with formats of its own.
type formatFlag struct {
	*cli.StringFlag
	formats []string
}

// format returns the value of -o, and "" for a command without that flag. Only tool.do needs the error.
func format(c *cli.Context) (string, error) {
	chosen := c.String("output")
	if own, ok := find(c.Command.Flags, "output").(formatFlag); ok {
		if !slices.Contains(own.formats, chosen) {
			return "", usageOf(commandName(c), "unknown output format %q; use %s", chosen, strings.Join(own.formats, " or "))
		}
		return chosen, nil
	}
	if chosen != "" && !slices.Contains([]string{asTable, asJSON, asJSONL}, chosen) || chosen == "" && c.IsSet("output") {
		return "", usageOf(commandName(c), "unknown output format %q; use table, json or jsonl", chosen)
	}
	return chosen, nil
}

// column is a column of a table. Each row is a T.
type column[T any] struct {
	head string
	cell func(T) string
}

// printItem writes an item as JSON. In table format it calls describe.
func printItem[T any](t *tool, c *cli.Context, item T, describe func() error) error {
	if chosen, _ := format(c); chosen != asTable {
		return jsonLines(t.stdout, []T{item})
	}
	return describe()
}

// printText writes an item as JSON. In table format it writes the text.
func printText[T any](t *tool, c *cli.Context, item T, text string) error {
	return printItem(t, c, item, func() error {
		_, err := fmt.Fprintln(t.stdout, text)
		return err
	})
}

// printRow writes an item as JSON, or as a table of one row.
func printRow[T any](t *tool, c *cli.Context, item T, columns ...column[T]) error {
	return printItem(t, c, item, func() error { return printTable(t, []T{item}, "", columns) })
}

// printList writes items in the format of -o and the order of --sort. JSON has them as an array under the same name as
// in the HTTP API. If a table would be empty, printList prints the message none instead, unless none is "".
func printList[T any](t *tool, c *cli.Context, name string, items []T, none string, columns ...column[T]) error {
	items, err := sorted(c, items, columns)
	if err != nil {
		return err
	}
	switch chosen, _ := format(c); chosen {
	case asJSONL:
		return jsonLines(t.stdout, items)
	case asJSON:
		return jsonObject(t.stdout, name, items, "")
	}
	return printTable(t, items, none, columns)
}

// printTable writes items as a table.
func printTable[T any](t *tool, items []T, none string, columns []column[T]) error {
	if len(items) == 0 {
		if none != "" {
			t.say("%s", none)
		}
		return nil
	}
	t.relative = isTerminal(t.stdout)
	head, rows := cells(items, columns)
	t.relative = false
	return t.table(head, rows)
}

// cells returns the heads and the rows of a table.
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

// jsonEscaper writes JSON for a terminal: it escapes the characters that printable would replace. Only strings contain
// them, because the encoder writes no space but newlines between tokens.
type jsonEscaper struct{ io.Writer }

// forJSON returns the writer for JSON to a stream. Each call of Write must have complete characters.
func forJSON(stream io.Writer) io.Writer {
	if isTerminal(stream) {
		return jsonEscaper{stream}
	}
	return stream
}

func (e jsonEscaper) Write(text []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(text) {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	if _, err := io.WriteString(e.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// jsonLines writes one value per line.
func jsonLines[T any](w io.Writer, items []T) error {
	w = forJSON(w)
	for _, item := range items {
		if err := surface.WriteJSON(w, item); err != nil {
			return err
		}
	}
	return nil
}

// jsonObject writes an object with an array under a name. more has the other members of the object and begins with a
// comma.
func jsonObject[T any](w io.Writer, name string, items []T, more string) error {
	var array strings.Builder
	if err := jsonArray(&array, items); err != nil {
		return err
	}
	_, err := fmt.Fprintf(forJSON(w), "{%q: %s%s}\n", name, strings.TrimSuffix(array.String(), "\n"), more)
	return err
}

// jsonArray writes an array with one element per line, which is readable and easy to compare.
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
	_, err := io.WriteString(forJSON(w), b.String())
	return err
}

// singleLine joins the lines of a text and replaces control characters, which could move the cursor or change earlier
// output.
func singleLine(s string) string {
	return strings.Join(strings.Fields(printable(s)), " ")
}

// printable replaces all control characters except newlines.
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

// clipped returns text on one line, cut to n runes.
func clipped(s string, n int) string {
	runes := []rune(singleLine(s))
	if len(runes) <= n {
		return string(runes)
	}
	return string(runes[:n-1]) + "…"
}

// stamp returns a time in RFC 3339 and UTC, or relative to now in a table on a terminal. It returns "" for the zero
// time.
func (t *terminal) stamp(at time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case t.relative:
		return ago(time.Since(at))
	}
	return at.UTC().Format(time.RFC3339)
}

// absoluteAndRelative returns a time in RFC 3339 and, on a terminal, also relative to now.
func (t *terminal) absoluteAndRelative(at time.Time) string {
	text := t.stamp(at)
	if text != "" && isTerminal(t.stdout) {
		text += " (" + ago(time.Since(at)) + ")"
	}
	return text
}

// ago formats the time d before now, in one unit. If d is negative, the time is in the future.
func ago(d time.Duration) string {
	if d < 0 {
		return "in " + unit(-d)
	}
	return unit(d) + " ago"
}

// unit formats a duration in one unit.
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

// plural returns a number with a noun, in the plural unless n is 1.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// unlessZero formats a value, and returns "" for the zero value.
func unlessZero[V comparable](v V) string {
	if v == *new(V) {
		return ""
	}
	return fmt.Sprint(v)
}

// yes formats a bool for a table: "yes" or "".
func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
