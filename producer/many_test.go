package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
)

// refusePayload returns an error if one of the tasks has the payload.
func refusePayload(tasks []holdfast.NewTask, payload string) error {
	if slices.ContainsFunc(tasks, func(t holdfast.NewTask) bool { return string(t.Payload) == payload }) {
		return fmt.Errorf("%w: injected", holdfast.ErrInvalid)
	}
	return nil
}

// If the insert of tasks with unique keys fails, no task without a key is stored, so the caller can repeat the call.
func TestManyWithAFaultCanBeRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	list := []holdfast.NewTask{task(0), keyed("a"), task(2)}
	for _, fault := range []error{errFault, context.Canceled} {
		w.inserts.fail = func(_ int, tasks []holdfast.NewTask) error {
			if tasks[0].Unique != "" {
				return fault
			}
			return nil
		}
		if results, err := w.EnqueueMany(t.Context(), list); !errors.Is(err, fault) || len(results) != 0 {
			t.Errorf("%d results, %v", len(results), err)
		}
	}
	w.inserts.fail = nil
	_, err := w.EnqueueMany(t.Context(), list)
	w.must(err)
	if n := w.count("tasks"); n != len(list) {
		t.Errorf("%d tasks are stored, want %d", n, len(list))
	}
}

// If the store refuses tasks, with or without unique keys, each has an error of its own, and all others are stored.
func TestManyNamesWhatTheStoreRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.fail = func(_ int, tasks []holdfast.NewTask) error { return refusePayload(tasks, "7") }
	list := []holdfast.NewTask{task(0), keyed("a"), task(7), keyed("b"), task(4), keyed("c")}
	list[3].Payload = []byte("7")
	results, err := w.EnqueueMany(t.Context(), list)
	var refused TaskErrors
	if !errors.As(err, &refused) || len(refused) != 2 || refused[0].Index != 2 || refused[1].Index != 3 || len(results) != len(list) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, result := range results {
		if wrong := i == 2 || i == 3; wrong != (result.ID == 0) {
			t.Errorf("task %d: %+v", i, result)
		}
	}
	for _, one := range refused {
		if !errors.Is(one, holdfast.ErrInvalid) {
			t.Errorf("%v", one)
		}
	}
	if n := w.count("tasks"); n != len(list)-2 {
		t.Errorf("%d tasks are stored", n)
	}
}

// If a call fails half-way, the results are those of its first tasks, and no later task is stored.
func TestManyReturnsWhatIsStoredForCertain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.fail = func(call int, tasks []holdfast.NewTask) error {
		if len(tasks) == 2 && string(tasks[0].Payload) == "2" {
			return errFault
		}
		return refusePayload(tasks, "1")
	}
	results, err := w.EnqueueMany(t.Context(), tasks(8))
	var refused TaskErrors
	if !errors.Is(err, errFault) || !errors.As(err, &refused) || len(refused) != 1 || refused[0].Index != 1 {
		t.Errorf("error %v", err)
	}
	if len(results) != 2 || results[0].ID == 0 || results[1].ID != 0 {
		t.Fatalf("results %+v", results)
	}
	if n := w.count("tasks"); n != 1 || w.payload(results[0].ID) != "0" {
		t.Errorf("%d tasks are stored", n)
	}
}
