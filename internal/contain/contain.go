// Package contain turns panics into errors. No value that is stored, and no message, may end the process that reads it.
package contain

import (
	"runtime/debug"

	"github.com/holdfastq/holdfast"
)

// Call calls f and returns its error. If f panics, Call returns a *holdfast.PanicError with the value and the stack. It
// does not see panics of goroutines that f starts.
func Call(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &holdfast.PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	return f()
}

// Value is like Call, for an f that returns a value.
func Value[T any](f func() (T, error)) (value T, err error) {
	err = Call(func() (err error) {
		value, err = f()
		return err
	})
	return value, err
}
