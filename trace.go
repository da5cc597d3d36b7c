package holdfast

import "context"

// Tracer connects tasks with distributed tracing. Package tracing implements it with OpenTelemetry. Where a Tracer is
// nil, tracing is off. Its methods are safe for concurrent use. They must return quickly, and must not panic.
type Tracer interface {
	// Enqueue is called before tasks are stored, with the context of the caller. It sets the Trace of the tasks that
	// have none. end is called once, when the tasks are stored or the call has failed. stored is the id of the task if
	// there is one task, and 0 otherwise.
	Enqueue(ctx context.Context, tasks []NewTask) (end func(stored TaskID, err error))
	// Attempt is called before the handler of an attempt. It returns the context for the handler. The Tracer may read
	// the task until the span ends, and must not change it.
	Attempt(ctx context.Context, task *Task) (context.Context, AttemptSpan)
}

// AttemptSpan is the part of a trace that covers one attempt.
type AttemptSpan interface {
	// Trace returns the trace context of the span, with which others continue it; see CheckTrace. It is empty if the
	// attempt belongs to no trace.
	Trace() string
	// End ends the span with the outcome of the attempt. It is called at most once. It must not change the transition.
	End(outcome *Transition)
}

// TraceIDs returns the ids of the trace and of the span in a trace context, or two empty strings if it is not valid.
func TraceIDs(trace string) (traceID, spanID string) {
	if !traceParent.MatchString(trace) {
		return "", ""
	}
	return trace[3:35], trace[36:52]
}
