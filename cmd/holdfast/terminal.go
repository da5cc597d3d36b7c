package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

// terminal is where an invocation reads and writes: a terminal, files or pipes.
type terminal struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	env    []string

	plain    bool // --no-color
	relative bool // stamp says how long ago
}

// one writes a single value: people is what the table format shows.
func (t *terminal) one(c *cli.Context, value any, people string) error {
	chosen, err := format(c)
	if err != nil {
		return err
	}
	if chosen == asTable {
		_, err := fmt.Fprintln(t.stdout, people)
		return err
	}
	return jsonLines(t.stdout, []any{value})
}

// table writes columns two spaces apart, without lines, so that they can be cut and
// grepped. On a terminal the heads stand out.
func (t *terminal) table(head table.Row, rows []table.Row) error {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	if t.colors(t.stdout) {
		style.Color.Header = text.Colors{text.Bold}
	}
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	w.AppendHeader(head)
	w.AppendRows(rows)
	_, err := fmt.Fprintln(t.stdout, w.Render())
	return err
}

// colors reports whether the stream is a terminal that wants colors; see no-color.org.
func (t *terminal) colors(stream io.Writer) bool {
	return isTerminal(stream) && !t.plain && !slices.ContainsFunc(t.env, func(pair string) bool {
		name, value, _ := strings.Cut(pair, "=")
		return name == "NO_COLOR" && value != ""
	})
}

// isTerminal reports whether a stream is a terminal, or a frame that is shown on one.
func isTerminal(stream any) bool {
	if f, ok := stream.(*frame); ok {
		return f.terminal
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func yesFlag() cli.Flag {
	return &cli.BoolFlag{Name: "yes", Usage: "do it without asking"}
}

// confirm asks before something that cannot be undone.
func (t *terminal) confirm(c *cli.Context, question string) error {
	if c.Bool("yes") {
		return nil
	}
	if !isTerminal(t.stdin) {
		return usage("this would %s; add --yes if you mean it", question)
	}
	fmt.Fprintf(t.stderr, "This will %s. Continue? [y/N] ", question)
	answer, _ := bufio.NewReader(t.stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}

// progress returns a bar on stderr, or nil if that is no terminal. A negative size is unknown.
func (t *terminal) progress(size int64, what string) *progressbar.ProgressBar {
	if !isTerminal(t.stderr) {
		return nil
	}
	return progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(t.stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetWidth(30),
		progressbar.OptionShowBytes(what != "retry"), progressbar.OptionClearOnFinish(),
	)
}
