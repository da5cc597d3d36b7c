package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/tracing"
)

// recorded is a Tracer whose spans a test reads.
type recorded struct {
	holdfast.Tracer
	provider *sdktrace.TracerProvider
	spans    *tracetest.SpanRecorder
}

func newRecorded(options ...sdktrace.TracerProviderOption) recorded {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(spans))...)
	return recorded{tracing.New(provider), provider, spans}
}

// ended returns the span of the only ended span with the name.
func (r recorded) ended(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, span := range r.spans.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans with the name %q have ended", len(found), name)
	}
	return found[0]
}

func value(span sdktrace.ReadOnlySpan, key string) string {
	for _, a := range span.Attributes() {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

func expect(t *testing.T, span sdktrace.ReadOnlySpan, attributes map[string]string) {
	t.Helper()
	for key, want := range attributes {
		if got := value(span, key); got != want {
			t.Errorf("%s: the attribute %s is %q, want %q", span.Name(), key, got, want)
		}
	}
}

func task(trace string, attempt int) *holdfast.Task {
	return &holdfast.Task{
		ID: 7, Type: "mail", Queue: "slow", Attempt: attempt, Worker: 3, Trace: trace, CreatedAt: time.UnixMicro(1_000_000),
	}
}

func TestATaskCarriesTheSpanOfItsEnqueue(t *testing.T) {
	t.Parallel()
	r := newRecorded()
	ctx, caller := r.provider.Tracer("test").Start(t.Context(), "caller")
	tasks := []holdfast.NewTask{{Type: "mail", Queue: "slow"}}
	r.Enqueue(ctx, tasks)(7, nil)
	span := r.ended(t, "send slow")
	want := fmt.Sprintf("00-%s-%s-01", caller.SpanContext().TraceID(), span.SpanContext().SpanID())
	if tasks[0].Trace != want || span.Parent().SpanID() != caller.SpanContext().SpanID() {
		t.Errorf("the task has %q, want %q; the parent is %v", tasks[0].Trace, want, span.Parent())
	}
	if span.SpanKind() != trace.SpanKindProducer || span.Status().Code != codes.Unset {
		t.Errorf("kind %v, status %v", span.SpanKind(), span.Status())
	}
	expect(t, span, map[string]string{
		"messaging.system": "holdfast", "messaging.operation.name": "send", "messaging.operation.type": "send",
		"messaging.destination.name": "slow", "messaging.message.id": "7", "messaging.batch.message_count": "", "holdfast.task.type": "mail",
	})
	if err := holdfast.CheckTrace(tasks[0].Trace); err != nil {
		t.Error(err)
	}
}

func TestASpanOfManyTasks(t *testing.T) {
	t.Parallel()
	r := newRecorded()
	const own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	tasks := []holdfast.NewTask{{Type: "a", Queue: "slow"}, {Type: "b", Queue: "fast", Trace: own}, {Type: "c", Queue: "slow"}}
	r.Enqueue(t.Context(), tasks)(0, fmt.Errorf("the key secret-7 is held: %w", holdfast.ErrTimeout))
	if tasks[1].Trace != own || tasks[0].Trace != tasks[2].Trace || tasks[0].Trace == "" {
		t.Errorf("the contexts are %q, %q and %q", tasks[0].Trace, tasks[1].Trace, tasks[2].Trace)
	}
	span := r.ended(t, "send")
	expect(t, span, map[string]string{
		"messaging.batch.message_count": "3", "messaging.destination.name": "", "messaging.message.id": "", "error.type": "timeout",
	})
	if span.Status().Code != codes.Error || strings.Contains(fmt.Sprint(span.Status(), span.Events(), span.Attributes()), "secret") {
		t.Errorf("status %v, events %v", span.Status(), span.Events())
	}
	r.Enqueue(t.Context(), nil)(0, nil)
}

func TestAnAttemptContinuesTheTrace(t *testing.T) {
	t.Parallel()
	r := newRecorded(sdktrace.WithIDGenerator(tracing.IDGenerator()))
	tasks := []holdfast.NewTask{{Type: "mail", Queue: "slow"}}
	r.Enqueue(t.Context(), tasks)(7, nil)
	stored := r.ended(t, "send slow").SpanContext()

	var attempts []trace.SpanContext
	for attempt := 1; attempt <= 3; attempt++ {
		ctx, span := r.Attempt(t.Context(), task(tasks[0].Trace, attempt))
		_, inner := r.provider.Tracer("test").Start(ctx, "inner")
		_, second := r.provider.Tracer("test").Start(ctx, "inner")
		if inner.SpanContext().SpanID() == second.SpanContext().SpanID() {
			t.Error("two spans of a handler have the same id")
		}
		traceID, spanID := holdfast.TraceIDs(span.Trace())
		if inner.(sdktrace.ReadOnlySpan).Parent().SpanID().String() != spanID || traceID != stored.TraceID().String() {
			t.Errorf("attempt %d: the context is %s", attempt, span.Trace())
		}
		attempts = append(attempts, trace.SpanContextFromContext(ctx))
		span.End(&holdfast.Transition{Event: holdfast.EventComplete})
	}
	var spans []sdktrace.ReadOnlySpan
	for _, span := range r.spans.Ended() {
		if span.Name() == "process slow" {
			spans = append(spans, span)
		}
	}
	for i, span := range spans {
		if span.Parent().SpanID() != stored.SpanID() || !span.Parent().IsRemote() || span.SpanKind() != trace.SpanKindConsumer {
			t.Errorf("attempt %d: parent %v, kind %v", i+1, span.Parent(), span.SpanKind())
		}
		expect(t, span, map[string]string{
			"messaging.system": "holdfast", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "slow", "messaging.message.id": "7", "holdfast.task.type": "mail",
			"holdfast.task.attempt": fmt.Sprint(i + 1), "holdfast.worker": "3", "holdfast.outcome": "",
		})
		switch links := span.Links(); {
		case i == 0 && len(links) > 0:
			t.Errorf("the first attempt has the links %v", links)
		case i > 0 && (len(links) != 1 || links[0].SpanContext.SpanID() != attempts[i-1].SpanID() || links[0].SpanContext.TraceID() != stored.TraceID()):
			t.Errorf("attempt %d has the links %v, want one to %v", i+1, links, attempts[i-1])
		}
	}
	if len(spans) != 3 || attempts[0].SpanID() == attempts[1].SpanID() {
		t.Errorf("%d spans of attempts", len(spans))
	}
}

// Without the generator, ids are random, and a link would lead to a span that never existed.
func TestNoLinksWithoutTheGenerator(t *testing.T) {
	t.Parallel()
	r := newRecorded()
	_, span := r.Attempt(t.Context(), task("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", 2))
	span.End(&holdfast.Transition{Event: holdfast.EventComplete})
	if links := r.ended(t, "process slow").Links(); len(links) > 0 {
		t.Errorf("links %v", links)
	}
}

func TestATaskWithoutAContextHasATraceOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRecorded(sdktrace.WithIDGenerator(tracing.IDGenerator()))
	ctx, worker := r.provider.Tracer("test").Start(t.Context(), "worker")
	first, one := r.Attempt(ctx, task("", 1))
	second, two := r.Attempt(ctx, task("", 2))
	one.End(&holdfast.Transition{Event: holdfast.EventRetry})
	two.End(&holdfast.Transition{Event: holdfast.EventComplete})
	a, b := trace.SpanContextFromContext(first), trace.SpanContextFromContext(second)
	if a.TraceID() != b.TraceID() || a.TraceID() == worker.SpanContext().TraceID() || a.SpanID() == b.SpanID() {
		t.Errorf("the contexts are %v and %v", a, b)
	}
	spans := r.spans.Ended()
	if spans[0].Parent().IsValid() || len(spans[0].Links()) != 0 || len(spans[1].Links()) != 1 || spans[1].Links()[0].SpanContext.SpanID() != a.SpanID() {
		t.Errorf("parent %v, links %v and %v", spans[0].Parent(), spans[0].Links(), spans[1].Links())
	}
	other := task("", 1)
	other.CreatedAt = other.CreatedAt.Add(time.Second)
	if ctx, _ := r.Attempt(ctx, other); trace.SpanContextFromContext(ctx).TraceID() == a.TraceID() {
		t.Error("two tasks share a trace")
	}
}

func TestOutcomesOfAttempts(t *testing.T) {
	t.Parallel()
	report := holdfast.ReportOf(errors.New("no route"))
	for event, failed := range map[holdfast.Event]bool{
		holdfast.EventComplete: false, holdfast.EventDefer: false, holdfast.EventInterrupt: false, holdfast.EventCancel: false,
		holdfast.EventRetry: true, holdfast.EventGiveUp: true,
	} {
		r := newRecorded()
		_, span := r.Attempt(t.Context(), task("", 1))
		span.End(&holdfast.Transition{Event: event, Report: report})
		got := r.ended(t, "process slow")
		outcome := string(event)
		if event == holdfast.EventComplete {
			outcome = ""
		}
		expect(t, got, map[string]string{"holdfast.outcome": outcome})
		if (got.Status().Code == codes.Error) != failed || (len(got.Events()) == 1) != failed || (value(got, "error.type") == report.Class) != failed {
			t.Errorf("%s: status %v, events %v, error.type %q", event, got.Status(), got.Events(), value(got, "error.type"))
		}
		if failed && got.Status().Description != "no route" {
			t.Errorf("%s: status %v", event, got.Status())
		}
	}
}

func TestAttemptsFollowTheDecisionOfTheSampler(t *testing.T) {
	t.Parallel()
	r := newRecorded(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	tasks := []holdfast.NewTask{{Type: "mail"}}
	r.Enqueue(t.Context(), tasks)(7, nil)
	if !strings.HasSuffix(tasks[0].Trace, "-00") {
		t.Errorf("the context is %q", tasks[0].Trace)
	}
	sampling := newRecorded(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	ctx, span := sampling.Attempt(t.Context(), task(tasks[0].Trace, 2))
	span.End(&holdfast.Transition{Event: holdfast.EventComplete})
	if n := len(sampling.spans.Ended()); n > 0 || trace.SpanContextFromContext(ctx).IsSampled() {
		t.Errorf("%d spans were recorded", n)
	}
}

func TestAProviderWithoutSpansPassesContextsOn(t *testing.T) {
	t.Parallel()
	tracer := tracing.New(noop.NewTracerProvider())
	tasks := []holdfast.NewTask{{Type: "mail"}}
	tracer.Enqueue(t.Context(), tasks)(7, nil)
	if tasks[0].Trace != "" {
		t.Errorf("the context is %q", tasks[0].Trace)
	}
	const own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	_, span := tracer.Attempt(t.Context(), task(own, 1))
	if span.Trace() != own {
		t.Errorf("the context is %q", span.Trace())
	}
	span.End(&holdfast.Transition{Event: holdfast.EventComplete})
}

func TestTracestate(t *testing.T) {
	t.Parallel()
	r := newRecorded()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for length, kept := range map[int]bool{10: true, holdfast.MaxTraceLength - len(parent) - 1: true, holdfast.MaxTraceLength - len(parent): false} {
		members := []string{}
		for rest := length; rest > 0; rest -= 101 { // a comma and a member of 100 bytes
			name := fmt.Sprintf("k%d=", len(members))
			members = append(members, name+strings.Repeat("x", min(100, rest)-len(name)))
		}
		state := strings.Join(members, ",")
		headers := http.Header{"Traceparent": {parent}, "Tracestate": {state}}
		ctx := tracing.Extract(t.Context(), propagation.HeaderCarrier(headers))
		if trace.SpanContextFromContext(ctx).TraceState().String() != state {
			t.Fatalf("the state %q was not read", state)
		}
		tasks := []holdfast.NewTask{{Type: "mail"}}
		r.Enqueue(ctx, tasks)(7, nil)
		if err := holdfast.CheckTrace(tasks[0].Trace); err != nil {
			t.Error(err)
		}
		if strings.HasSuffix(tasks[0].Trace, " "+state) != kept {
			t.Errorf("%d bytes: the context is %q", length, tasks[0].Trace)
		}
		if !kept {
			continue
		}
		ctx, span := r.Attempt(context.Background(), task(tasks[0].Trace, 1))
		sent := http.Header{}
		tracing.Inject(ctx, propagation.HeaderCarrier(sent))
		if sent.Get("tracestate") != state || !strings.HasPrefix(span.Trace(), sent.Get("traceparent")) {
			t.Errorf("%d bytes: sent %v, the context is %q", length, sent, span.Trace())
		}
	}
}

func TestDamagedContexts(t *testing.T) {
	t.Parallel()
	r := newRecorded(sdktrace.WithIDGenerator(tracing.IDGenerator()))
	for _, stored := range []string{
		"x", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902bg-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
	} {
		ctx, span := r.Attempt(t.Context(), task(stored, 2))
		span.End(&holdfast.Transition{Event: holdfast.EventComplete})
		if sc := trace.SpanContextFromContext(ctx); !sc.IsValid() || len(stored) > 36 && stored[3:35] == sc.TraceID().String() {
			t.Errorf("%q: the context is %v", stored, sc)
		}
	}
}
