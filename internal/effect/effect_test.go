package effect_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/effect"
	"github.com/holdfastq/holdfast/store"
)

// slowStore is the store of an attempt. It accepts a success when the channel is closed.
type slowStore struct {
	store.Data
	called, accept chan struct{}
}

func (s slowStore) ApplyTx(context.Context, store.Tx, holdfast.Transition) (bool, error) {
	close(s.called)
	<-s.accept
	return true, nil
}

type host struct {
	effect.Host
	store slowStore
}

func (h host) Store() effect.Store                   { return h.store }
func (h host) Success() (holdfast.Transition, error) { return holdfast.Transition{}, nil }
func (h host) MaxPayload() int                       { return 100 }

// A worker may give an attempt up while its CompleteTx waits for the store. The methods that the worker then calls must
// not wait, because the results of all attempts would wait with them.
func TestNothingWaitsForCompleteTx(t *testing.T) {
	t.Parallel()
	h := host{store: slowStore{called: make(chan struct{}), accept: make(chan struct{})}}
	var a effect.Attempt
	ctx := a.Begin(t.Context(), h)
	answer := make(chan error)
	go func() { answer <- a.CompleteTx(ctx, nil) }()
	<-h.store.called
	if a.Completed() || !a.Locks() {
		t.Errorf("while CompleteTx waits, Completed is %t and Locks is %t", a.Completed(), a.Locks())
	}
	if err := a.Output([]byte("1")); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("while CompleteTx waits, Output returned %v, want an ErrConflict", err)
	}
	close(h.store.accept)
	if err := <-answer; err != nil || !a.Completed() || !a.Locks() {
		t.Errorf("CompleteTx returned %v, and then Completed is %t and Locks is %t", err, a.Completed(), a.Locks())
	}
}
