package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

// terminal has the streams and the environment of an invocation.
type terminal struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	env    []string

	plain    bool // --no-color
	relative bool // stamp returns relative times
}

// colors reports whether the stream is a terminal and colors are enabled; see no-color.org.
func (t *terminal) colors(stream io.Writer) bool {
	return isTerminal(stream) && !t.plain && t.variable("NO_COLOR") == ""
}

// helpWidth returns the width of help texts.
func (t *terminal) helpWidth() int {
	if width := t.width(); width > 0 {
		return min(width, helpWidth)
	}
	return helpWidth
}

// variable returns the value of an environment variable, and "" if it is not set.
func (t *terminal) variable(name string) string {
	for _, pair := range t.env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// isTerminal reports whether a stream is a terminal, or buffers the output for a terminal in a frame.
func isTerminal(stream any) bool {
	switch s := stream.(type) {
	case *frame:
		return s.terminal
	case *output:
		return isTerminal(s.Writer)
	}
	f := fileOf(stream)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// fileOf returns the file that a stream is or writes to, or nil.
func fileOf(stream any) *os.File {
	switch s := stream.(type) {
	case *frame:
		return fileOf(s.screen)
	case *output:
		return fileOf(s.Writer)
	case *os.File:
		return s
	}
	return nil
}

func yesFlag() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{Name: "yes", Usage: "do not ask for confirmation"}}
}

// confirm asks for confirmation on a terminal, unless --yes is set. Elsewhere it returns an error without --yes.
// question is the rest of a sentence that begins with "This will".
func (t *terminal) confirm(c *cli.Context, question string) error {
	if c.Bool("yes") {
		return nil
	}
	if !isTerminal(t.stdin) {
		return usage("this would %s; to confirm, add --yes", question)
	}
	fmt.Fprintf(t.stderr, "This will %s. Continue? [y/N] ", question)
	answer, _ := bufio.NewReader(t.stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}

// progress returns a progress bar on stderr that counts bytes, or nil if stderr is not a terminal. A negative size
// means an unknown size.
func (t *terminal) progress(size int64, what string) *progressbar.ProgressBar {
	return t.bar(size, what, progressbar.OptionShowBytes(true))
}

// countProgress is like progress, but does not count bytes.
func (t *terminal) countProgress(size int64, what string) *progressbar.ProgressBar {
	return t.bar(size, what, progressbar.OptionShowCount())
}

// bar returns a progress bar on stderr without numbers, or nil if stderr is not a terminal. The options take precedence.
// See progress.
func (t *terminal) bar(size int64, what string, options ...progressbar.Option) *progressbar.ProgressBar {
	if !isTerminal(t.stderr) {
		return nil
	}
	return progressbar.NewOptions64(size, append([]progressbar.Option{
		progressbar.OptionSetWriter(t.stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(100 * time.Millisecond), progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
	}, options...)...)
}

// output is stdout. It keeps the first error, so that a command with incomplete output fails. After an error it writes
// nothing.
type output struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	var n int
	n, o.err = o.Writer.Write(p)
	return n, o.err
}

// result returns the error of a command whose function returned err. If the reader of stdout has gone away, as head
// does, and the function returned no other error, the error has no text.
func (o *output) result(err error) error {
	found := parts(err) // a command may join the errors of its parts
	other := func(part error) bool { return part != o.err }
	if o.err == nil || err != nil && (len(found) == 0 || slices.ContainsFunc(found, other)) {
		return err
	}
	if errors.Is(o.err, syscall.EPIPE) {
		return &failure{code: exitFailure}
	}
	return o.err
}

// stored returns the error of a command that has made a change, which the text describes, and then could not write its
// result. It returns nil if err is nil.
func stored(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, but the result cannot be written: %w", fmt.Sprintf(format, args...), err)
}

// catchBrokenPipes makes a write to stdout or stderr return an error if the reader has gone away. Otherwise the runtime
// would end the process at once, without a drain and without a message. Child processes do not inherit this.
func catchBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
