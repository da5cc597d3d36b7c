package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/internal/transfer"
	"github.com/holdfastq/holdfast/store"
)

// The exit codes, the same for every command.
const (
	exitOK          = 0
	exitFailure     = 1   // any other error
	exitUsage       = 2   // unknown command or flag, bad value, invalid configuration or input
	exitNotFound    = 3   // no such task or worker
	exitConflict    = 4   // the state does not allow the operation
	exitPartly      = 5   // only some of several items succeeded
	exitUnavailable = 6   // PostgreSQL or RabbitMQ cannot be reached
	exitCheck       = 7   // a check failed: schema, topology, configuration
	exitTimeout     = 124 // wait timed out
	exitInterrupted = 130 // a signal ended the command
)

// failure is an error with an exit code and an optional hint. If err is nil, the command has already printed its
// messages, and report prints none.
type failure struct {
	err  error
	code int
	hint string
	at   *search.SyntaxError // where a search is wrong; the method report then prints the search and marks the place
}

func (f *failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// errInterrupted is the error of a command that a signal ended.
var errInterrupted = &failure{err: errors.New("interrupted"), code: exitInterrupted}

// interrupted is like errInterrupted, with a hint.
func interrupted(hint string) error {
	return &failure{err: errInterrupted.err, code: exitInterrupted, hint: hint}
}

// usage returns an error about the command line or the input.
func usage(format string, args ...any) error {
	return &failure{err: fmt.Errorf(format, args...), code: exitUsage}
}

// usageOf is like usage, with a hint that names the help of the command.
func usageOf(command, format string, args ...any) error {
	return &failure{err: fmt.Errorf(format, args...), code: exitUsage, hint: "see: " + command + " --help"}
}

// notFound adds a hint to an ErrNotFound that has none.
func notFound(err error, hint string) error {
	if errors.Is(err, holdfast.ErrNotFound) && holdfast.HintOf(err) == (holdfast.Hint{}) {
		return &failure{err: err, code: exitNotFound, hint: hint}
	}
	return err
}

// badFlag returns the error for a flag whose value cannot be parsed.
func badFlag(c *cli.Context, err error, _ bool) error {
	text := strings.TrimSuffix(err.Error(), ": parse error")
	return usageOf(commandName(c), "%s", strings.Replace(text, "for flag -", "for --", 1))
}

// exitCode returns the exit code for an error. All commands use this function.
func exitCode(err error) int {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	for _, known := range []struct {
		err  error
		code int
	}{
		{store.ErrSchema, exitCheck},
		{transfer.ErrDiffers, exitCheck},
		{holdfast.ErrUnavailable, exitUnavailable},
		{holdfast.ErrInvalid, exitUsage},
		{holdfast.ErrNotFound, exitNotFound},
		{holdfast.ErrConflict, exitConflict},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	if err != nil {
		return exitFailure
	}
	return exitOK
}

// report prints an error on one line. It prints joined errors on one line each. Then it prints each hint once.
func (t *tool) report(err error) {
	if err == nil {
		return
	}
	var hints []string
	for _, one := range parts(err) {
		if text := t.message(one); text != "" {
			t.say("%s", text)
		}
		hints = append(hints, hintText(holdfast.HintOf(one)))
		hints = append(hints, t.reportPanic(one))
	}
	if f, ok := errors.AsType[*failure](err); ok {
		hints = append(hints, f.hint)
		if f.at != nil {
			t.mark(f.at)
		}
	}
	for i, hint := range hints {
		if !slices.Contains(hints[:i], hint) {
			t.hint(hint)
		}
	}
}

// reportPanic returns the hint for a panic, and "" for any other error. If the log level is debug, it prints the stack.
func (t *tool) reportPanic(err error) (hint string) {
	p, panicked := errors.AsType[*holdfast.PanicError](err)
	switch {
	case !panicked:
		return ""
	case t.debug:
		fmt.Fprintln(t.stderr, configs.RedactText(printable(p.Stack)))
		return "this is a fault of this program: report it with these lines and the output of: holdfast version"
	}
	return "this is a fault of this program: report it with the output of: holdfast version, and of this command with --log-level debug"
}

// mark prints a search, and a mark below the character with the error.
func (t *tool) mark(e *search.SyntaxError) {
	line := func(text string) string { return printable(strings.ReplaceAll(text, "\n", " ")) }
	before := utf8.RuneCountInString(line(e.Text[:e.Offset]))
	fmt.Fprintf(t.stderr, "  %s\n  %s^\n", line(e.Text), strings.Repeat(" ", before))
}

// hint prints the text of a hint. It prints nothing if the text is empty.
func (t *tool) hint(text string) {
	if text != "" {
		fmt.Fprintln(t.stderr, configs.RedactText(singleLine(text)))
	}
}

// sayError prints the context of an error, the error and its hint.
func (t *tool) sayError(about string, err error) {
	t.say("%s: %s", about, t.message(err))
	t.hint(hintText(holdfast.HintOf(err)))
}

// say prints one message to stderr. It hides the passwords of URLs, because the message may quote an argument.
func (t *tool) say(format string, args ...any) {
	fmt.Fprintf(t.stderr, "holdfast: %s\n", configs.RedactText(singleLine(fmt.Sprintf(format, args...))))
}

// warn prints one message for each warning.
func (t *tool) warn(warnings []string) {
	for _, warning := range warnings {
		t.say("warning: %s", warning)
	}
}

// parts returns the errors that err joins. It returns err itself if err joins none.
func parts(err error) []error {
	if f, ok := err.(*failure); ok {
		if f.err == nil {
			return nil
		}
		return parts(f.err)
	}
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(several.Unwrap()...).Error() != err.Error() { // err adds a text to those that it joins
		return []error{err}
	}
	var all []error
	for _, one := range several.Unwrap() {
		all = append(all, parts(one)...)
	}
	return all
}

// message returns the text of an error for users. If a setting is wrong, the text names the flag as the user typed it.
// The text of an error value such as holdfast.ErrInvalid is removed.
func (t *tool) message(err error) string {
	if problem, ok := errors.AsType[*configs.Error](err); ok {
		renamed := *problem
		renamed.Origin = t.origin(problem.Origin)
		return renamed.Error()
	}
	text := err.Error()
	for _, sentinel := range []error{holdfast.ErrInvalid, holdfast.ErrNotFound, holdfast.ErrConflict, holdfast.ErrUnavailable} {
		text = strings.TrimPrefix(text, sentinel.Error()+": ")
		if sentinel != holdfast.ErrInvalid && errors.Is(err, sentinel) {
			text = strings.Replace(text, ": "+sentinel.Error()+": ", ": ", 1)
		}
	}
	return text
}
