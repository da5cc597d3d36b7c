package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/transfer"
	"github.com/holdfastq/holdfast/store"
)

// The exit codes, the same for every command.
const (
	exitOK          = 0
	exitFailure     = 1   // anything the others do not say
	exitUsage       = 2   // unknown command or flag, bad value, invalid configuration or input
	exitNotFound    = 3   // no such task or run
	exitConflict    = 4   // the state does not allow it
	exitPartly      = 5   // some of several were done
	exitUnavailable = 6   // PostgreSQL or RabbitMQ cannot be reached
	exitCheck       = 7   // a check failed: schema, topology, configuration
	exitTimeout     = 124 // wait timed out
	exitInterrupted = 130
)

// failure is an error with an exit code of its own, and perhaps a hint what to do.
// Without an error nothing is printed any more: everything has been said.
type failure struct {
	err  error
	code int
	hint string
}

func (f *failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// errInterrupted is the end of a command that a signal stopped.
var errInterrupted = &failure{err: errors.New("interrupted"), code: exitInterrupted}

// usage is an error in what was typed.
func usage(format string, args ...any) error {
	return &failure{err: fmt.Errorf(format, args...), code: exitUsage}
}

// usageOf is usage with a pointer to the help of a command.
func usageOf(command, format string, args ...any) error {
	return &failure{fmt.Errorf(format, args...), exitUsage, "see: " + command + " --help"}
}

// badFlag answers flags whose value cannot be read.
func badFlag(c *cli.Context, err error, _ bool) error {
	text := strings.TrimSuffix(err.Error(), ": parse error")
	return usageOf(commandName(c), "%s", strings.Replace(text, "for flag -", "for --", 1))
}

// exitCode is the one place that turns errors into exit codes.
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

// report prints an error as one line, joined ones as one line each, and then each hint once.
func (t *tool) report(err error) {
	if err == nil {
		return
	}
	var hints []string
	for _, one := range parts(err) {
		if text := t.sentence(one); text != "" {
			t.say("%s", text)
		}
		hints = append(hints, wording(holdfast.HintOf(one)))
	}
	if f, ok := errors.AsType[*failure](err); ok {
		hints = append(hints, f.hint)
	}
	for i, hint := range hints {
		if !slices.Contains(hints[:i], hint) {
			t.hint(hint)
		}
	}
}

// hint prints what to do next, if there is something to do.
func (t *tool) hint(text string) {
	if text != "" {
		fmt.Fprintln(t.stderr, singleLine(text))
	}
}

// sayError prints what an error is about, the error, and its hint.
func (t *tool) sayError(about string, err error) {
	t.say("%s: %s", about, t.sentence(err))
	t.hint(wording(holdfast.HintOf(err)))
}

// say prints one message for people.
func (t *tool) say(format string, args ...any) {
	fmt.Fprintf(t.stderr, "holdfast: %s\n", singleLine(fmt.Sprintf(format, args...)))
}

// parts takes joined errors apart.
func parts(err error) []error {
	if f, ok := err.(*failure); ok {
		if f.err == nil {
			return nil
		}
		return parts(f.err)
	}
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(several.Unwrap()...).Error() != err.Error() { // it says more than its parts
		return []error{err}
	}
	var all []error
	for _, one := range several.Unwrap() {
		all = append(all, parts(one)...)
	}
	return all
}

// sentence is an error as a person reads it: flags by the names they have here, and
// without the word invalid in front of a text that says what is.
func (t *tool) sentence(err error) string {
	if problem, ok := errors.AsType[*configs.Error](err); ok {
		renamed := *problem
		renamed.Origin = t.origin(problem.Origin)
		return renamed.Error()
	}
	return strings.TrimPrefix(err.Error(), holdfast.ErrInvalid.Error()+": ")
}
