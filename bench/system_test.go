package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// noted is a queue that notes what it was asked for.
type noted struct {
	calls *[]string
	name  string
}

func (q noted) note(call string) error {
	*q.calls = append(*q.calls, q.name+" "+call)
	return nil
}

func (q noted) Fill(context.Context, [][]byte) error             { return q.note("fills") }
func (q noted) Put(context.Context, []byte, time.Duration) error { return q.note("puts") }
func (q noted) Work(context.Context, func([]byte) error) error   { return q.note("works") }
func (q noted) Close() error                                     { return q.note("closes") }

func TestApartIsStoredByOneAndRunByAnother(t *testing.T) {
	t.Parallel()
	var calls []string
	names := []string{"first", "second"}
	s := system{name: "some", servers: []string{"SOME_URL"}, open: func(context.Context) (queue, error) {
		q := noted{&calls, names[0]}
		names = names[1:]
		return q, nil
	}}
	q, err := s.openFor(t.Context(), stepOf("apart"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.Fill(t.Context(), nil), q.Put(t.Context(), nil, 0), q.Work(t.Context(), nil), q.Close()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"first fills", "first puts", "second works", "first closes", "second closes"}; !slices.Equal(calls, want) {
		t.Errorf("%q", calls)
	}
}

func TestWithoutServersNothingIsApart(t *testing.T) {
	t.Parallel()
	var calls []string
	s := system{name: "some", open: func(context.Context) (queue, error) { return noted{&calls, "it"}, nil }}
	if _, err := s.openFor(t.Context(), stepOf("apart")); !errors.Is(err, errUnfit) {
		t.Errorf("opened with %v", err)
	}
	if _, err := s.openFor(t.Context(), stepOf("pickup")); err != nil {
		t.Error(err)
	}
}

func TestWhatIsOpenedInVainIsClosed(t *testing.T) {
	t.Parallel()
	var calls []string
	refused := errors.New("refused")
	s := system{name: "some", servers: []string{"SOME_URL"}, open: func(context.Context) (queue, error) {
		if len(calls) > 0 {
			return nil, refused
		}
		calls = append(calls, "it opens")
		return noted{&calls, "it"}, nil
	}}
	if _, err := s.openFor(t.Context(), stepOf("apart")); !errors.Is(err, refused) {
		t.Errorf("opened with %v", err)
	}
	if want := []string{"it opens", "it closes"}; !slices.Equal(calls, want) {
		t.Errorf("%q", calls)
	}
}
