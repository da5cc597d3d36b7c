package holdfast

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// contained is an error that the module has read. It has all data of the original that the module needs. Its methods
// call no code of the original, so they neither panic nor end their goroutine.
type contained struct {
	text     string
	parts    []error // errors in the tree of the original that the module acts on
	original error   // only for PolicyFor, which may call its methods
}

func (c *contained) Error() string { return c.text }

func (c *contained) Unwrap() []error { return c.parts }

// contain reads an error, whose methods may be code of a handler. If one of them panics or calls runtime.Goexit, the
// result has the stack of that call. It is then a failure, unless the error requests another outcome.
func contain(err error) error {
	if _, ok := err.(*contained); ok || err == nil {
		return err
	}
	c := &contained{original: err}
	var tree errorTree
	problem := guard(func() {
		tree.read(err)
		c.text = clip(err.Error(), MaxErrorLength)
	}).printable()
	if problem != nil {
		text := fmt.Sprintf("the text of the error cannot be read (its type is %T)", err)
		guard(func() { text = err.Error() })
		c.text = clip(fmt.Sprintf("%s; a method of the error failed: %s", text, problem), MaxErrorLength)
	}
	c.parts = tree.parts(errors.New(c.text), problem)
	if tree.contained != nil {
		c.original = rewrapped{err, tree.contained.original}
	}
	return c
}

// rewrapped is the original of a contained error that was wrapped again.
type rewrapped struct {
	error
	original error
}

func (r rewrapped) Unwrap() []error { return []error{r.error, r.original} }

// errorTree collects the errors that the module acts on from an error and from all errors that it wraps. Of each kind
// it keeps the one that errors.As finds.
type errorTree struct {
	visited   int
	outcome   *outcome
	target    *targetError
	detailed  *detailed
	panicked  *PanicError
	contained *contained
	known     []error
}

// maxErrorTree is the maximum number of errors that are read in a tree. An error may wrap itself.
const maxErrorTree = 1000

// read visits an error and all errors that it wraps, in the order of errors.As.
func (t *errorTree) read(err error) {
	if err == nil || t.visited == maxErrorTree {
		return
	}
	t.visited++
	as(err, &t.outcome)
	as(err, &t.target)
	as(err, &t.detailed)
	as(err, &t.panicked)
	as(err, &t.contained)
	for _, known := range knownCauses {
		alike, ok := err.(interface{ Is(error) bool })
		if (err == known.err || ok && alike.Is(known.err)) && !slices.Contains(t.known, known.err) {
			t.known = append(t.known, known.err)
		}
	}
	switch wrapper := err.(type) {
	case interface{ Unwrap() error }:
		t.read(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, wrapped := range wrapper.Unwrap() {
			t.read(wrapped)
		}
	}
}

// as sets found if err has its type, or if the method As of err sets it. It does nothing if found is already set. It
// ignores the errors that err wraps.
func as[E any](err error, found **E) {
	if *found != nil {
		return
	}
	if e, ok := err.(any).(*E); ok {
		*found = e
	} else if convertible, ok := err.(interface{ As(any) bool }); ok {
		convertible.As(found)
	}
}

// parts returns copies of the collected errors that wrap only text. problem is the failure that ended the reading, or
// nil.
func (t *errorTree) parts(text error, problem *PanicError) []error {
	parts := t.known
	if o := t.outcome; o != nil {
		parts = append(parts, &outcome{event: o.event, after: o.after, cause: text, free: o.free})
	}
	if t.target != nil {
		parts = append(parts, &targetError{text, t.target.mark})
	}
	if d := t.detailed; d != nil {
		parts = append(parts, &detailed{text, d.class, d.details})
	}
	if t.panicked != nil {
		problem = t.panicked
	}
	if problem != nil {
		parts = append(parts, problem)
	}
	return parts
}

// guard calls f on another goroutine and waits for its end. It returns nil if f returned, and otherwise how f ended.
func guard(f func()) *PanicError {
	ended := make(chan *PanicError)
	go func() {
		returned := false
		defer func() {
			var failure *PanicError
			if v := recover(); !returned {
				failure = &PanicError{Value: v, Stack: string(debug.Stack())}
			}
			ended <- failure
		}()
		f()
		returned = true
	}()
	return <-ended
}

// printable returns the panic with its value as text, because methods of the value may panic, too.
func (p *PanicError) printable() *PanicError {
	if p == nil || p.Value == nil {
		return p
	}
	text := fmt.Sprintf("a value of type %T that cannot be printed", p.Value)
	guard(func() { text = fmt.Sprint(p.Value) })
	return &PanicError{Value: text, Stack: p.Stack}
}
