package effect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/effect"
	"github.com/holdfastq/holdfast/store"
)

// host is an attempt with a store that records the calls.
type host struct {
	task     holdfast.Task
	stored   []store.Datum // of earlier attempts
	refused  error         // error of SaveData
	accepted bool          // answer of ApplyTx
	expired  bool          // the lease of the worker

	mu    sync.Mutex
	calls []string
}

func (h *host) Task() *holdfast.Task                                  { return &h.task }
func (h *host) Store() effect.Store                                   { return h }
func (h *host) MaxPayload() int                                       { return 4 << 20 }
func (h *host) Leased() bool                                          { return !h.expired }
func (h *host) Complete(n holdfast.NewTask) (holdfast.NewTask, error) { return n, n.Validate(1000) }
func (h *host) Success() (holdfast.Transition, error) {
	return holdfast.Transition{Task: h.task.ID}, nil
}
func (h *host) record(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
}

func (h *host) SaveData(_ context.Context, by store.Fence, values []store.Datum) error {
	for _, v := range values {
		h.record("save %d %s=%s", by.Attempt, v.Name, v.Value)
	}
	return h.refused
}

func (h *host) TaskData(context.Context, []holdfast.TaskID, ...string) ([]store.Datum, error) {
	h.record("read")
	return h.stored, nil
}

func (h *host) ApplyTx(_ context.Context, _ store.Tx, move holdfast.Transition) (bool, error) {
	output, next := json.RawMessage(nil), 0
	if move.Effects != nil {
		output, next = move.Effects.Output, len(move.Effects.Next)
	}
	h.record("apply %s %d", output, next)
	return h.accepted, nil
}

func (h *host) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.calls = nil }()
	return strings.Join(h.calls, "; ")
}

// begin begins an attempt.
func begin(t *testing.T, h *host) (context.Context, attempt) {
	t.Helper()
	h.task.ID, h.task.Attempt = 7, max(1, h.task.Attempt)
	var c effect.Context
	ctx := c.Begin(t.Context(), h)
	a, err := effect.From(context.WithValue(ctx, h, 1))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := effect.From(ctx); err != nil || again != a {
		t.Fatalf("found %p, want %p: %v", again, a, err)
	}
	return ctx, attempt{a, &c}
}

// attempt is an attempt with its context.
type attempt struct {
	*effect.Attempt
	c *effect.Context
}

func TestProgressIsWrittenOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(host)
		ctx, a := begin(t, h)
		at := func(percent int) { a.Progress(ctx, store.Progress{Percent: percent}) }
		at(1)
		if got := h.take(); got != `save 1 progress={"percent":1}` {
			t.Errorf("the first progress: %s", got)
		}
		for i := range 50 {
			at(i)
		}
		time.Sleep(effect.ProgressEvery - 1)
		if got := h.take(); got != "" {
			t.Errorf("within a second: %s", got)
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if got := h.take(); got != `save 1 progress={"percent":49}` {
			t.Errorf("after a second: %s", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := h.take(); got != "" {
			t.Errorf("without another call: %s", got)
		}
		at(60)
		at(170)
		a.c.End()
		if got := h.take(); got != `save 1 progress={"percent":60}; save 1 progress={"percent":100}` {
			t.Errorf("at the end: %s", got)
		}
		at(80)
		time.Sleep(time.Minute)
		if got := h.take(); got != "" {
			t.Errorf("after the end: %s", got)
		}
	})
}

func TestAnAttemptReadsTheValuesOnce(t *testing.T) {
	h := &host{stored: []store.Datum{{Name: "checkpoint", Value: json.RawMessage(`5`)}}}
	ctx, a := begin(t, h)
	for range 2 {
		if v, err := a.Value(ctx, "checkpoint"); string(v) != "5" || err != nil {
			t.Errorf("value %s, %v", v, err)
		}
	}
	if err := a.Save(ctx, "checkpoint", json.RawMessage(`6`)); err != nil {
		t.Error(err)
	}
	if v, err := a.Value(ctx, "checkpoint"); string(v) != "6" || err != nil {
		t.Errorf("after Save: value %s, %v", v, err)
	}
	if got := h.take(); got != "read; save 1 checkpoint=6" {
		t.Errorf("calls %s", got)
	}
}

func TestARefusedValueMeansThatTheLeaseIsLost(t *testing.T) {
	h := &host{refused: fmt.Errorf("save: %w", store.ErrFenced)}
	ctx, a := begin(t, h)
	if err := a.Save(ctx, "checkpoint", json.RawMessage(`1`)); !errors.Is(err, holdfast.ErrLeaseLost) {
		t.Error(err)
	}
	if v, err := a.Value(ctx, "checkpoint"); v != nil || err != nil {
		t.Errorf("a value that was refused is %s, %v", v, err)
	}
}

func TestCompleteTxIsTheLastEffect(t *testing.T) {
	h := &host{accepted: true}
	ctx, a := begin(t, h)
	err := errors.Join(a.Output(json.RawMessage(`1`)), a.Output(json.RawMessage(`2`)), a.Next(holdfast.NewTask{Type: "x"}), a.CompleteTx(ctx, nil))
	if err != nil || !a.Completed() || h.take() != "apply 2 1" {
		t.Fatalf("completed %t, %v", a.Completed(), err)
	}
	for what, err := range map[string]error{
		"output": a.Output(json.RawMessage(`3`)), "next": a.Next(holdfast.NewTask{Type: "x"}), "save": a.Save(ctx, "a", json.RawMessage(`3`)),
		"again": a.CompleteTx(ctx, nil),
	} {
		if !errors.Is(err, holdfast.ErrConflict) {
			t.Errorf("%s after CompleteTx: %v", what, err)
		}
	}
	if effects := a.c.End(); effects != nil || h.take() != "" {
		t.Errorf("the effects are stored twice: %+v", effects)
	}
	h.accepted = false
	ctx, a = begin(t, h)
	if err := a.CompleteTx(ctx, nil); !errors.Is(err, holdfast.ErrLeaseLost) || a.Completed() {
		t.Errorf("a refused success: completed %t, %v", a.Completed(), err)
	}
}

func TestAnAttemptThatHasEndedStoresNothing(t *testing.T) {
	h := new(host)
	ctx, a := begin(t, h)
	if err := errors.Join(a.Output(json.RawMessage(`1`)), a.Next(holdfast.NewTask{Type: "x"})); err != nil {
		t.Fatal(err)
	}
	if effects := a.c.End(); effects == nil || string(effects.Output) != "1" || len(effects.Next) != 1 {
		t.Errorf("effects %+v", effects)
	}
	for _, err := range []error{a.Output(json.RawMessage(`3`)), a.Next(holdfast.NewTask{Type: "x"}), a.Save(ctx, "a", json.RawMessage(`3`)), a.CompleteTx(ctx, nil)} {
		if !errors.Is(err, holdfast.ErrConflict) {
			t.Error(err)
		}
	}
	if _, err := effect.From(t.Context()); !errors.Is(err, holdfast.ErrInvalid) {
		t.Error(err)
	}
	var none effect.Context
	ctx = none.Begin(t.Context(), h)
	if none.End() != nil || none.Locks() || none.Completed() {
		t.Error("an attempt without effects has some")
	}
	if _, err := effect.From(ctx); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("an attempt that has ended without effects: %v", err)
	}
}

func TestATaskHasAtMostAThousandValues(t *testing.T) {
	h := &host{task: holdfast.Task{Attempt: 2}}
	for i := range effect.MaxSteps {
		h.stored = append(h.stored, store.Datum{Name: store.StepData(fmt.Sprint(i)), Value: json.RawMessage(`1`)})
	}
	ctx, a := begin(t, h)
	if err := a.Save(ctx, store.StepData("7"), json.RawMessage(`2`)); err != nil {
		t.Error(err)
	}
	if err := a.Save(ctx, store.StepData("more"), json.RawMessage(`2`)); !errors.Is(err, holdfast.ErrInvalid) {
		t.Error(err)
	}
	_, _, err := a.BeginStep(ctx, store.StepData("more"))
	if !errors.Is(err, holdfast.ErrInvalid) || !holdfast.HasOutcome(err) {
		t.Errorf("one step more: %v", err)
	}
	long := json.RawMessage(`"` + strings.Repeat("x", effect.MaxBytes-1000) + `"`)
	if err := a.Save(ctx, store.StepData("7"), long); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("values of more than %d bytes: %v", effect.MaxBytes, err)
	}
	if calls := strings.Split(h.take(), "; "); !slices.Equal(calls, []string{"read", "save 2 step/7=2"}) {
		t.Errorf("calls %v", calls)
	}
}

func TestAStepBeginsOnlyIfItsValueCanBeStored(t *testing.T) {
	name := store.StepData("charge")
	h := new(host)
	ctx, a := begin(t, h)
	_, end, err := a.BeginStep(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("cancelled by a person")
	ended, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	if _, _, err := a.BeginStep(ended, name); !errors.Is(err, cause) { // the other call has the step
		t.Errorf("a wait with a context that has ended: %v", err)
	}
	end()
	if _, _, err := a.BeginStep(ended, name); !errors.Is(err, cause) {
		t.Errorf("a context that has ended: %v", err)
	}
	h.expired = true
	if _, _, err := a.BeginStep(ctx, name); !errors.Is(err, holdfast.ErrLeaseLost) {
		t.Errorf("a lease that has expired: %v", err)
	}
	h.expired = false
	_, end, err = a.BeginStep(ctx, name)
	if err == nil {
		err = a.Save(ctx, name, json.RawMessage(`1`))
		end()
	}
	h.expired = true // a stored value needs no lease
	if stored, _, beginErr := a.BeginStep(ctx, name); err != nil || beginErr != nil || string(stored) != "1" {
		t.Errorf("a step that has run: %s, %v, %v", stored, err, beginErr)
	}
}

// slowStore is the store of an attempt. It accepts a success when the channel is closed.
type slowStore struct {
	store.Effects
	called, accept chan struct{}
}

func (s slowStore) ApplyTx(context.Context, store.Tx, holdfast.Transition) (bool, error) {
	close(s.called)
	<-s.accept
	return true, nil
}

type slowHost struct {
	effect.Host
	store slowStore
}

func (h slowHost) Store() effect.Store                   { return h.store }
func (h slowHost) Success() (holdfast.Transition, error) { return holdfast.Transition{}, nil }
func (h slowHost) MaxPayload() int                       { return 100 }

// A worker may give an attempt up while its CompleteTx waits for the store. The methods that the worker then calls must
// not wait, because the results of all attempts would wait with them.
func TestNothingWaitsForCompleteTx(t *testing.T) {
	t.Parallel()
	h := slowHost{store: slowStore{called: make(chan struct{}), accept: make(chan struct{})}}
	var c effect.Context
	ctx := c.Begin(t.Context(), h)
	found, err := effect.From(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a, answer := attempt{found, &c}, make(chan error)
	go func() { answer <- a.CompleteTx(ctx, nil) }()
	<-h.store.called
	if a.Completed() || !a.c.Locks() {
		t.Errorf("while CompleteTx waits, Completed is %t and Locks is %t", a.Completed(), a.c.Locks())
	}
	if err := a.Output([]byte("1")); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("while CompleteTx waits, Output returned %v, want an ErrConflict", err)
	}
	close(h.store.accept)
	if err := <-answer; err != nil || !a.Completed() || !a.c.Locks() {
		t.Errorf("CompleteTx returned %v, and then Completed is %t and Locks is %t", err, a.Completed(), a.c.Locks())
	}
}
