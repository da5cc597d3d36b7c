// Package tracing connects tasks with OpenTelemetry: one trace leads from the call that stores a task through every
// attempt to the systems that the handler calls.
//
//	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithIDGenerator(tracing.IDGenerator()))
//	client, err := queue.Open(ctx, queue.Tracer(tracing.New(provider)))
//
// A call that stores tasks makes one span of the kind producer, a child of the span in its context. Each task is stored
// with the context of that span. Each call of a handler makes one span of the kind consumer, a child of the stored
// context. Its context is the context of the handler, so instrumented clients continue the trace. A task that was
// stored without a context, for example by a schedule, has a trace of its own, in which the spans of its attempts are
// roots.
//
// From the second attempt on, the span has a link to the span of the previous attempt. Nothing is stored for the link,
// because the id of the span of an attempt is a hash of the trace, the task and the attempt. This needs the provider to
// use [IDGenerator]; otherwise there are no such links, and each attempt of a task without a context has another trace.
// The target of a link may be missing: the span of an attempt is not exported if its process was killed.
//
// The package needs no SDK, and exports nothing itself. It never stores baggage.
package tracing

import (
	"context"
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfastq/holdfast"
)

// Scope is the name of the instrumentation scope of the spans.
const Scope = "github.com/holdfastq/holdfast/tracing"

// The attributes of spans. Those of messaging are from the semantic conventions of OpenTelemetry.
const (
	keySystem        = attribute.Key("messaging.system")
	keyOperationName = attribute.Key("messaging.operation.name")
	keyOperationType = attribute.Key("messaging.operation.type")
	keyDestination   = attribute.Key("messaging.destination.name")
	keyMessage       = attribute.Key("messaging.message.id")
	keyCount         = attribute.Key("messaging.batch.message_count")
	keyErrorType     = attribute.Key("error.type")

	keyType    = attribute.Key("holdfast.task.type")
	keyAttempt = attribute.Key("holdfast.task.attempt")
	keyWorker  = attribute.Key("holdfast.worker")
	keyOutcome = attribute.Key("holdfast.outcome")
)

const (
	send    = "send"
	process = "process"
)

// New returns a Tracer whose spans are made by the provider. The sampler of the provider decides which spans are
// recorded. It gets the name and the kind of a span, but no attributes. The decision is stored with the task, so that
// all attempts of a task follow it under the samplers that respect their parent.
func New(provider trace.TracerProvider) holdfast.Tracer {
	producer, consumer := trace.WithSpanKind(trace.SpanKindProducer), trace.WithSpanKind(trace.SpanKindConsumer)
	return &tracer{
		spans: provider.Tracer(Scope), producer: []trace.SpanStartOption{producer},
		consumer: []trace.SpanStartOption{consumer}, root: []trace.SpanStartOption{consumer, trace.WithNewRoot()},
	}
}

// tracer sets the attributes of a span at its end, in one call, because each call copies all attributes of the span.
type tracer struct {
	spans                    trace.Tracer
	producer, consumer, root []trace.SpanStartOption
}

// Enqueue implements holdfast.Tracer.
func (t *tracer) Enqueue(ctx context.Context, tasks []holdfast.NewTask) (end func(holdfast.TaskID, error)) {
	_, span := t.spans.Start(ctx, spanName(send, destination(tasks)), t.producer...)
	stored := encode(span.SpanContext())
	for i := range tasks {
		if tasks[i].Trace == "" {
			tasks[i].Trace = stored
		}
	}
	return func(id holdfast.TaskID, err error) {
		if span.IsRecording() {
			span.SetAttributes(sendAttributes(tasks, id, err)...)
			if err != nil { // the caller gets the text, which can contain keys of tasks
				span.SetStatus(codes.Error, "")
			}
		}
		span.End()
	}
}

func sendAttributes(tasks []holdfast.NewTask, id holdfast.TaskID, err error) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, 8)
	list = append(list, keySystem.String("holdfast"), keyOperationName.String(send), keyOperationType.String(send))
	if name := destination(tasks); name != "" {
		list = append(list, keyDestination.String(name))
	}
	if id != 0 {
		list = append(list, keyMessage.String(id.String()))
	}
	if err != nil {
		list = append(list, keyErrorType.String(holdfast.ReportOf(err).Class))
	}
	if len(tasks) == 1 {
		return append(list, keyType.String(tasks[0].Type))
	}
	return append(list, keyCount.Int(len(tasks)))
}

// destination returns the queue of the tasks, or "" if they have several.
func destination(tasks []holdfast.NewTask) string {
	for i := range tasks {
		if tasks[i].Queue != tasks[0].Queue {
			return ""
		}
	}
	if len(tasks) == 0 {
		return ""
	}
	return tasks[0].Queue
}

func spanName(operation, destination string) string {
	if destination == "" {
		return operation
	}
	return operation + " " + destination
}

// Attempt implements holdfast.Tracer.
func (t *tracer) Attempt(ctx context.Context, task *holdfast.Task) (context.Context, holdfast.AttemptSpan) {
	parent, known := decode(task.Trace)
	starting := &startContext{Context: ctx, ids: ids{trace: parent.TraceID()}}
	options := t.consumer
	if known {
		starting.Context = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else {
		starting.ids.trace, options = traceOf(task), t.root
	}
	starting.ids.span = spanOf(starting.ids.trace, task.ID, task.Attempt)
	// The context of the handler is not made from starting, because the spans of the handler need other ids.
	_, span := t.spans.Start(starting, spanName(process, task.Queue), options...)
	wanted := starting.ids
	made := span.SpanContext()
	if task.Attempt > 1 && span.IsRecording() && made.TraceID() == wanted.trace && made.SpanID() == wanted.span {
		span.AddLink(trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: wanted.trace, SpanID: spanOf(wanted.trace, task.ID, task.Attempt-1),
				TraceFlags: made.TraceFlags(), Remote: true,
			}),
			Attributes: []attribute.KeyValue{keyAttempt.Int(task.Attempt - 1)},
		})
	}
	return trace.ContextWithSpan(ctx, span), &attempt{span, task}
}

// attempt implements holdfast.AttemptSpan.
type attempt struct {
	span trace.Span
	task *holdfast.Task
}

// Trace implements holdfast.AttemptSpan.
func (a *attempt) Trace() string { return encode(a.span.SpanContext()) }

// End implements holdfast.AttemptSpan. An attempt that was deferred, cancelled or handed back has not failed.
func (a *attempt) End(outcome *holdfast.Transition) {
	if a.span.IsRecording() {
		a.record(outcome)
	}
	a.span.End()
}

func (a *attempt) record(outcome *holdfast.Transition) {
	list := append(make([]attribute.KeyValue, 0, 10), keySystem.String("holdfast"), keyOperationName.String(process),
		keyOperationType.String(process), keyDestination.String(a.task.Queue), keyMessage.String(a.task.ID.String()),
		keyType.String(a.task.Type), keyAttempt.Int(a.task.Attempt), keyWorker.String(a.task.Worker.String()))
	if outcome.Event != holdfast.EventComplete { // the SDK handles up to eight attributes with less memory
		list = append(list, keyOutcome.String(string(outcome.Event)))
	}
	switch outcome.Event {
	case holdfast.EventRetry, holdfast.EventGiveUp, holdfast.EventCrash:
		class, text := outcome.Report.Class, outcome.Report.Error
		list = append(list, keyErrorType.String(class))
		a.span.SetStatus(codes.Error, text)
		a.span.AddEvent("exception", trace.WithAttributes(
			attribute.String("exception.type", class), attribute.String("exception.message", text)))
	}
	a.span.SetAttributes(list...)
}

// encode returns the context of a span in the form of holdfast.CheckTrace, or "" if it is not valid. The traceparent is
// more important than the tracestate, so a tracestate that is too long is left out.
func encode(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	flags := sc.TraceFlags() & trace.FlagsSampled
	parent := "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + flags.String()
	if state := sc.TraceState().String(); state != "" && len(parent)+1+len(state) <= holdfast.MaxTraceLength {
		return parent + " " + state
	}
	return parent
}

// decode returns the context of a span from a stored trace context. Package propagation would do the same with more
// allocations.
func decode(stored string) (sc trace.SpanContext, ok bool) {
	parent, state, _ := strings.Cut(stored, " ")
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' || parent[:2] == "ff" {
		return sc, false // ff is not a version
	}
	var c trace.SpanContextConfig
	var flags [1]byte
	_, errTrace := hex.Decode(c.TraceID[:], []byte(parent[3:35]))
	_, errSpan := hex.Decode(c.SpanID[:], []byte(parent[36:52]))
	_, errFlags := hex.Decode(flags[:], []byte(parent[53:55]))
	if errTrace != nil || errSpan != nil || errFlags != nil {
		return sc, false
	}
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0])&trace.FlagsSampled, true
	if state != "" {
		c.TraceState, _ = trace.ParseTraceState(state) // empty if it is not valid
	}
	sc = trace.NewSpanContext(c)
	return sc, sc.IsValid()
}

// Extract returns ctx with the trace context of the headers of a request as the remote parent of new spans.
func Extract(ctx context.Context, headers propagation.TextMapCarrier) context.Context {
	return propagation.TraceContext{}.Extract(ctx, headers)
}

// Inject sets the headers that continue the trace of ctx in another system.
func Inject(ctx context.Context, headers propagation.TextMapCarrier) {
	propagation.TraceContext{}.Inject(ctx, headers)
}
