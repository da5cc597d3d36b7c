package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfastq/holdfast"
)

// ids are the ids of a span.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// startContext is a context with the ids for the span that is started with it.
type startContext struct {
	context.Context
	ids ids
}

type idsKey struct{}

// Value implements context.Context.
func (c *startContext) Value(key any) any {
	if key == (idsKey{}) {
		return &c.ids
	}
	return c.Context.Value(key)
}

// traceOf returns the id of the trace of a task that was stored without a context. All attempts have the same one.
func traceOf(task *holdfast.Task) trace.TraceID {
	input := append(make([]byte, 0, 40), "holdfast trace "...)
	input = binary.BigEndian.AppendUint64(input, uint64(task.ID))
	input = binary.BigEndian.AppendUint64(input, uint64(task.CreatedAt.UnixMicro()))
	sum := sha256.Sum256(input)
	return trace.TraceID(sum[:16])
}

// spanOf returns the id of the span of an attempt.
func spanOf(in trace.TraceID, task holdfast.TaskID, attempt int) trace.SpanID {
	input := append(make([]byte, 0, 40), in[:]...)
	input = binary.BigEndian.AppendUint64(input, uint64(task))
	input = binary.BigEndian.AppendUint64(input, uint64(attempt))
	sum := sha256.Sum256(input)
	return trace.SpanID(sum[:8])
}

// Generator makes the ids of spans. It implements IDGenerator of go.opentelemetry.io/otel/sdk/trace.
type Generator struct{}

// IDGenerator returns the generator for sdktrace.WithIDGenerator. It gives the spans of attempts the ids that links
// between attempts need, and all other spans random ids.
func IDGenerator() Generator { return Generator{} }

// NewIDs implements IDGenerator of the SDK.
func (Generator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if wanted, ok := ctx.Value(idsKey{}).(*ids); ok {
		return wanted.trace, wanted.span
	}
	var id trace.TraceID
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, randomSpan()
}

// NewSpanID implements IDGenerator of the SDK.
func (Generator) NewSpanID(ctx context.Context, in trace.TraceID) trace.SpanID {
	if wanted, ok := ctx.Value(idsKey{}).(*ids); ok && wanted.trace == in {
		return wanted.span
	}
	return randomSpan()
}

func randomSpan() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
