package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/surface"
)

// result prints the results of a batch. It keeps only the results of some subtasks in memory.
func (t batchCommands) result(ctx context.Context, c *cli.Context, b *app.Backend, r one[holdfast.BatchID]) error {
	_, batch, err := surface.GetBatch(ctx, b, r.ID)
	if err != nil {
		return notFound(err, seeBatches)
	}
	write, flush := t.jsonResults()
	if chosen, _ := format(c); chosen == asCSV {
		write, flush = csvResults(t.stdout)
	}
	found := int64(0)
	for one, err := range b.BatchResults(ctx, r.ID) {
		if err == nil {
			found++
			err = write(surface.BatchResultOf(one))
		}
		if err != nil {
			return err
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return surface.MissingResults(batch, found)
}

// jsonResults returns functions that write results as lines of JSON.
func (t batchCommands) jsonResults() (write func(surface.BatchResult) error, flush func() error) {
	return func(r surface.BatchResult) error { return jsonLines(t.stdout, []surface.BatchResult{r}) }, func() error { return nil }
}

// csvResults returns functions that write results as CSV with a header. A spreadsheet gets no formulas, and a terminal gets
// the texts without characters that it would obey.
func csvResults(to io.Writer) (write func(surface.BatchResult) error, flush func() error) {
	out := csv.NewWriter(to)
	shown := noFormula
	if isTerminal(to) {
		shown = func(text string) string { return noFormula(printable(text)) }
	}
	headed := false
	head := func() error {
		if headed {
			return nil
		}
		headed = true
		return out.Write([]string{"id", "state", "payload", "output", "error"})
	}
	write = func(r surface.BatchResult) error {
		if err := head(); err != nil {
			return err
		}
		return out.Write([]string{r.ID.String(), string(r.State), shown(csvCell(r.Payload)), shown(csvCell(r.Output)), shown(r.Error)})
	}
	return write, func() error {
		if err := head(); err != nil {
			return err
		}
		out.Flush()
		return out.Error()
	}
}

// csvCell returns the text of a JSON string, and other JSON as it is.
func csvCell(value json.RawMessage) string {
	var text string
	if len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// decimal matches numbers, which may begin with a sign.
var decimal = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// noFormula returns a text that spreadsheets show instead of running it as a formula: a text that begins as a formula and
// is not a number gets an apostrophe in front. See https://owasp.org/www-community/attacks/CSV_Injection.
func noFormula(text string) string {
	if text == "" || !strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return text
	}
	if decimal.MatchString(text) {
		return text
	}
	return "'" + text
}
