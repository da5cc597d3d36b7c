package tracing_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/tracing"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// TestATraceOfAProgram follows a task whose first attempt fails and whose second one stores a next task, which dies.
func TestATraceOfAProgram(t *testing.T) {
	t.Parallel()
	r := newRecorded(sdktrace.WithIDGenerator(tracing.IDGenerator()))
	log, lines := test.NewNullLogger()
	c, err := queue.Open(t.Context(),
		queue.Environment(nil), queue.File(filepath.Join(t.TempDir(), "holdfast.db")), queue.NoSignals(), queue.Logger(log),
		queue.Set("defaults.retry.strategy", "fixed"), queue.Set("defaults.retry.base", "1ms"), queue.Tracer(r.Tracer))
	if err != nil {
		t.Fatal(err)
	}
	dead := make(chan holdfast.TaskID, 1)
	err = errors.Join(
		queue.Handle(c, "first", func(ctx context.Context, task holdfast.Task, _ json.RawMessage) error {
			_, inner := r.provider.Tracer("test").Start(ctx, "inner")
			inner.End()
			if task.Attempt == 1 {
				return errors.New("no route")
			}
			return queue.Next(ctx, "second", nil, queue.Queue("slow"))
		}),
		queue.Handle(c, "second", func(_ context.Context, task holdfast.Task, _ json.RawMessage) error {
			dead <- task.ID
			return holdfast.Permanent(errors.New("no use"))
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stopped := sync.OnceFunc(func() {
		stop()
		run.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	defer stopped()

	parent, caller := r.provider.Tracer("test").Start(t.Context(), "caller")
	if _, err := c.Enqueue(parent, "first", 1); err != nil {
		t.Fatal(err)
	}
	caller.End()
	select {
	case id := <-dead:
		limited, cancel := context.WithTimeout(t.Context(), slow.Patience())
		defer cancel()
		if task, err := c.Wait(limited, id); task.State != holdfast.Dead {
			t.Fatal(err, task)
		}
	case <-time.After(slow.Patience()):
		t.Fatal("timeout")
	}
	stopped()

	// Each span has the name of its parent, of the spans in its links, and its outcome.
	names := make(map[trace.SpanID]string)
	for _, span := range r.spans.Ended() {
		name := span.Name() + " " + value(span, "holdfast.task.attempt")
		if span.Name() == "inner" {
			name = "inner"
		}
		names[span.SpanContext().SpanID()] = name
		if span.SpanContext().TraceID() != caller.SpanContext().TraceID() {
			t.Errorf("%s has another trace", name)
		}
	}
	var got []string
	for _, span := range r.spans.Ended() {
		line := names[span.SpanContext().SpanID()] + " < " + names[span.Parent().SpanID()]
		for _, link := range span.Links() {
			line += ", link to " + names[link.SpanContext.SpanID()]
		}
		if outcome := value(span, "holdfast.outcome"); outcome != "" {
			line += ", " + outcome
		}
		if span.Status().Code == codes.Error {
			line += ": " + span.Status().Description
		}
		got = append(got, line)
	}
	slices.Sort(got)
	want := []string{
		"caller  < ", "inner < process default 1", "inner < process default 2",
		"process default 1 < send default , retry: no route",
		"process default 2 < send default , link to process default 1",
		"process slow 1 < process default 2, give_up: no use",
		"send default  < caller ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the spans are\n%q, want\n%q", got, want)
	}
	var deaths int
	for _, line := range lines.AllEntries() {
		if line.Message == "task is dead" {
			deaths++
			if line.Data["trace_id"] != caller.SpanContext().TraceID().String() || names[spanID(t, line.Data["span_id"])] != "process slow 1" {
				t.Errorf("the line has the fields %v", line.Data)
			}
			if line.Data["worker"] == nil || line.Data["task"] == nil || line.Data["attempts"] == nil {
				t.Errorf("the line has the fields %v", line.Data)
			}
		}
	}
	if deaths != 1 {
		t.Errorf("%d lines about deaths", deaths)
	}
}

func spanID(t *testing.T, text any) trace.SpanID {
	t.Helper()
	id, err := trace.SpanIDFromHex(text.(string))
	if err != nil {
		t.Error(err)
	}
	return id
}
