// Package tracing connects tasks with OpenTelemetry: one trace leads from the call that stores a task through every
// attempt to the systems that the handler calls.
//
//	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithIDGenerator(tracing.IDGenerator()))
//	client, err := queue.Open(ctx, queue.Tracer(tracing.New(provider)))
//
// A call that stores tasks makes one span of the kind producer, a child of the span in its context. Each task is stored
// with the context of that span. Each call of a handler makes one span of the kind consumer, a child of the stored
// context. Its context is the context of the handler, so instrumented clients continue the trace. A task that was stored
// without a context, for example by a schedule, has a trace of its own, in which the spans of its attempts are roots.
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
// recorded. The decision is stored with the task, so that all attempts of a task follow it under the samplers that
// respect their parent.
func New(provider trace.TracerProvider) holdfast.Tracer {
	return &tracer{provider.Tracer(Scope)}
}

type tracer struct{ spans trace.Tracer }

// Enqueue implements holdfast.Tracer.
func (t *tracer) Enqueue(ctx context.Context, tasks []holdfast.NewTask) (end func(holdfast.TaskID, error)) {
	ctx, span := t.spans.Start(ctx, spanName(send, destination(tasks)), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(sendAttributes(tasks)...))
	stored := encode(trace.SpanContextFromContext(ctx))
	for i := range tasks {
		if tasks[i].Trace == "" {
			tasks[i].Trace = stored
		}
	}
	return func(id holdfast.TaskID, err error) {
		if id != 0 {
			span.SetAttributes(keyMessage.String(id.String()))
		}
		if err != nil { // the caller gets the text, which can contain keys of tasks
			span.SetStatus(codes.Error, "")
			span.SetAttributes(keyErrorType.String(holdfast.ReportOf(err).Class))
		}
		span.End()
	}
}

func sendAttributes(tasks []holdfast.NewTask) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, 6)
	list = append(list, keySystem.String("holdfast"), keyOperationName.String(send), keyOperationType.String(send))
	if name := destination(tasks); name != "" {
		list = append(list, keyDestination.String(name))
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
	options := make([]trace.SpanStartOption, 0, 3)
	options = append(options, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		keySystem.String("holdfast"), keyOperationName.String(process), keyOperationType.String(process),
		keyDestination.String(task.Queue), keyMessage.String(task.ID.String()), keyType.String(task.Type),
		keyAttempt.Int(task.Attempt), keyWorker.String(task.Worker.String())))
	ids := wanted{trace: parent.TraceID()}
	starting := ctx
	if known {
		starting = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else {
		ids.trace = traceOf(task)
		options = append(options, trace.WithNewRoot())
	}
	ids.span = spanOf(ids.trace, task.ID, task.Attempt)
	// The context of the handler is not made from the one with the ids, because its own spans need other ids.
	_, span := t.spans.Start(context.WithValue(starting, wantedKey{}, &ids), spanName(process, task.Queue), options...)
	made := span.SpanContext()
	if task.Attempt > 1 && span.IsRecording() && made.TraceID() == ids.trace && made.SpanID() == ids.span {
		span.AddLink(trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: ids.trace, SpanID: spanOf(ids.trace, task.ID, task.Attempt-1), TraceFlags: made.TraceFlags(), Remote: true,
			}),
			Attributes: []attribute.KeyValue{keyAttempt.Int(task.Attempt - 1)},
		})
	}
	return trace.ContextWithSpan(ctx, span), attempt{span}
}

// attempt implements holdfast.AttemptSpan.
type attempt struct{ span trace.Span }

// Trace implements holdfast.AttemptSpan.
func (a attempt) Trace() string { return encode(a.span.SpanContext()) }

// End implements holdfast.AttemptSpan. An attempt that was deferred, cancelled or handed back has not failed.
func (a attempt) End(outcome *holdfast.Transition) {
	if a.span.IsRecording() {
		a.span.SetAttributes(keyOutcome.String(string(outcome.Event)))
		switch outcome.Event {
		case holdfast.EventRetry, holdfast.EventGiveUp, holdfast.EventCrash:
			class, text := outcome.Report.Class, outcome.Report.Error
			a.span.SetStatus(codes.Error, text)
			a.span.SetAttributes(keyErrorType.String(class))
			a.span.AddEvent("exception", trace.WithAttributes(attribute.String("exception.type", class), attribute.String("exception.message", text)))
		}
	}
	a.span.End()
}

// encode returns the context of a span in the form of holdfast.CheckTrace, or "" if it is not valid. The traceparent is
// more important than the tracestate, so a tracestate that is too long is left out.
func encode(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	parent := "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + (sc.TraceFlags() & trace.FlagsSampled).String()
	if state := sc.TraceState().String(); state != "" && len(parent)+1+len(state) <= holdfast.MaxTraceLength {
		return parent + " " + state
	}
	return parent
}

// decode returns the context of a span from a stored trace context. Package propagation would do the same with more
// allocations.
func decode(stored string) (sc trace.SpanContext, ok bool) {
	parent, state, _ := strings.Cut(stored, " ")
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' || parent[:2] == "ff" { // no version is ff
		return sc, false
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
