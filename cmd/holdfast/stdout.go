package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// output is stdout. It keeps the first error, so that no command succeeds whose output is incomplete.
type output struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// result returns the error of a command that returned err. If the reader of stdout has gone away, as head does, and the
// command has changed nothing, the error has no text.
func (o *output) result(err error) error {
	if o.err == nil || err != nil && err != o.err {
		return err
	}
	if errors.Is(o.err, syscall.EPIPE) {
		return &failure{code: exitFailure}
	}
	return o.err
}

// stored returns the error of a command that has changed what the text says, and then could not write its result.
func stored(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, but the result cannot be written: %w", fmt.Sprintf(format, args...), err)
}

// catchBrokenPipes makes a write to stdout or stderr return an error if its reader has gone away. Without it, the
// runtime ends the process at once, without a drain and without a message. Processes that this one starts do not
// inherit it.
func catchBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
