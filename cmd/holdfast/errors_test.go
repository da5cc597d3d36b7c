package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, exitOK},
		{"anything", errors.New("disk on fire"), exitFailure},
		{"a cancelled context alone", context.Canceled, exitFailure},
		{"invalid input", fmt.Errorf("enqueue: %w: no type", holdfast.ErrInvalid), exitUsage},
		{"a usage error", usage("--limit %d is negative", -1), exitUsage},
		{"a usage error with a hint", usageOf("holdfast", "unknown flag"), exitUsage},
		{"a configuration error", errors.Join(&configs.Error{Key: "listen"}, &configs.Error{Key: "roles"}), exitUsage},
		{"not found", fmt.Errorf("read: %w", holdfast.ErrNotFound), exitNotFound},
		{"a conflict", fmt.Errorf("move: %w", holdfast.ErrConflict), exitConflict},
		{"an unavailable server", fmt.Errorf("connect: %w: refused", holdfast.ErrUnavailable), exitUnavailable},
		{"an unavailable server and an error of close", errors.Join(holdfast.ErrUnavailable, errors.New("close")), exitUnavailable},
		{"a schema mismatch", fmt.Errorf("check: %w", store.ErrSchema), exitCheck},
		{"a schema mismatch that looks invalid", fmt.Errorf("%w: %w", holdfast.ErrInvalid, store.ErrSchema), exitCheck},
		{"some of several", someFailed([]error{holdfast.ErrNotFound}, 1), exitPartly},
		{"none of several", someFailed([]error{holdfast.ErrNotFound, holdfast.ErrConflict}, 0), exitConflict},
		{"some, and then an unavailable server", someFailed([]error{holdfast.ErrUnavailable}, 3), exitUnavailable},
		{"a code of its own wins", &failure{err: holdfast.ErrInvalid, code: exitCheck}, exitCheck},
		{"a timeout after a dead task", errors.Join(errors.New("task 1 is dead"), timedOut(holdfast.Task{}, 2, 1)), exitTimeout},
		{"a signal", errInterrupted, exitInterrupted},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%s: exit code %d, want %d", test.name, got, test.want)
		}
	}
}

func TestErrorsAreOneLineEach(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"nothing", nil, ""},
		{"already reported", &failure{code: exitPartly}, ""},
		{"a plain error", errors.New("no\nnews"), "holdfast: no news\n"},
		{"no sentinel", fmt.Errorf("%w: a task needs a type", holdfast.ErrInvalid), "holdfast: a task needs a type\n"},
		{"a change that the state forbids", fmt.Errorf("%w: cannot retry task 2: its state is done", holdfast.ErrConflict),
			"holdfast: cannot retry task 2: its state is done\n"},
		{"a hint follows", usageOf("holdfast task", "what?"), "holdfast: what?\nsee: holdfast task --help\n"},
		{"a hint of the store", fmt.Errorf("open: %w", holdfast.WithHint(errors.New("old"), holdfast.Hint{Kind: holdfast.HintMigrate})), "holdfast: open: old\nrun: holdfast migrate up\n"},
		{"one hint of two errors", errors.Join(holdfast.WithHint(errors.New("one"), holdfast.Advice("do\nit")), holdfast.WithHint(errors.New("two"), holdfast.Advice("do\nit"))),
			"holdfast: one\nholdfast: two\ndo it\n"},
		{"joined errors", errors.Join(errors.New("one"), errors.Join(errors.New("two"), errors.New("three"))), "holdfast: one\nholdfast: two\nholdfast: three\n"},
		{"joined inside a failure", &failure{err: errors.Join(errors.New("one"), errors.New("two"))}, "holdfast: one\nholdfast: two\n"},
		{"two causes in one error", fmt.Errorf("close: %w, %w", errors.New("one"), errors.New("two")), "holdfast: close: one, two\n"},
		{"control characters", errors.New("\x1b[2Jboo\u009b\x00"), `holdfast: \u001b[2Jboo\u009b\u0000` + "\n"},
	} {
		var out bytes.Buffer
		(&tool{terminal: terminal{stderr: &out}}).report(test.err)
		if out.String() != test.want {
			t.Errorf("%s: %q, want %q", test.name, out.String(), test.want)
		}
	}
}

// oddWriter panics when a command writes its result.
type oddWriter struct{}

func (oddWriter) Write([]byte) (int, error) { panic("an odd value") }

// A command that panics ends with a sentence and a hint. Only the log level debug shows the stack.
func TestACommandThatPanicsSaysSo(t *testing.T) {
	t.Parallel()
	for level, traced := range map[string]bool{"info": false, "debug": true} {
		var errs bytes.Buffer
		command := &tool{terminal: terminal{stdin: strings.NewReader(""), stdout: oddWriter{}, stderr: &errs}}
		code := command.run(t.Context(), []string{"config", "show", "--log-level", level})
		if code != exitFailure || !strings.HasPrefix(errs.String(), "holdfast: panic: an odd value\n") || !strings.Contains(errs.String(), "report it with") {
			t.Errorf("%s: code %d, %s", level, code, errs.String())
		}
		if got := strings.Contains(errs.String(), "oddWriter"); got != traced {
			t.Errorf("%s: the stack is shown: %t\n%s", level, got, errs.String())
		}
	}
}
