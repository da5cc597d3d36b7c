package daemon

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/tracing"
)

const (
	// flushTimeout is how long a stop waits until the last spans are exported. A drain of 25 s and this time end before
	// most platforms kill a process, 30 s after its stop was requested.
	flushTimeout = 3 * time.Second
	// exportInterval is the time between two log lines about spans that were not exported.
	exportInterval = time.Minute
)

// startTracing sets the Tracer of the backend if the environment has an endpoint for traces, unless the backend has one
// already. stop exports the last spans and removes the Tracer, so the next call of Serve can set one that works. A
// collector that fails or does not answer delays no task, and spans are lost.
func startTracing(ctx context.Context, o Options, env func(string) string) (stop func()) {
	log := o.Backend.Log
	c := traceExportOf(env)
	if c.why != "" {
		log.WithField("why", c.why).Info("tracing is off")
	}
	for _, wrong := range c.ignored {
		log.WithField("wrong", wrong).Warn("variable of tracing ignored")
	}
	if c.endpoint == nil || o.Backend.Tracer != nil {
		return func() {}
	}
	// The SDK prints values of variables. Package daemon has checked them, so its lines say nothing new.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.WithField("error", c.redact(err.Error())).Warn("tracing reports an error")
	}))
	exporter, err := otlptracehttp.New(ctx, c.export...)
	if err != nil {
		log.WithField("error", c.redact(err.Error())).Warn("tracing is off: the exporter does not start")
		return func() {}
	}
	described, err := resource.New(ctx,
		resource.WithAttributes(attributesOf(o)...), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil { // described has all attributes that are valid
		log.WithError(err).Warn("the attributes of traces are incomplete")
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&loggedExporter{SpanExporter: exporter, log: log, redact: c.redact}, c.batch...), sdktrace.WithResource(described),
		sdktrace.WithIDGenerator(tracing.IDGenerator()))
	o.Backend.Tracer = tracing.New(provider)
	log.WithField("endpoint", c.origin()).Info("tracing is on")
	return func() {
		o.Backend.Tracer = nil // its provider ends
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(limited); err != nil {
			log.WithField("error", c.redact(err.Error())).Warn("spans not exported before the stop")
			_ = exporter.Shutdown(limited) // ends the export in progress, whose error would say the same
		}
	}
}

// attributesOf returns the attributes of the process that the environment can override.
func attributesOf(o Options) []attribute.KeyValue {
	list := []attribute.KeyValue{attribute.String("service.name", "holdfast")}
	if o.Version != "" {
		list = append(list, attribute.String("service.version", o.Version))
	}
	if name := o.Backend.Config.Worker.Name; name != "" {
		list = append(list, attribute.String("service.instance.id", name))
	}
	return list
}

// propagate sets the headers that continue the trace of ctx.
func propagate(ctx context.Context, header http.Header) {
	tracing.Inject(ctx, propagation.HeaderCarrier(header))
}

// traced returns a handler that continues the traces of requests, if tracing is on.
func traced(b *app.Backend, handler http.Handler) http.Handler {
	if b.Tracer == nil {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(tracing.Extract(r.Context(), propagation.HeaderCarrier(r.Header))))
	})
}

// loggedExporter logs at most once a minute that spans were not exported.
type loggedExporter struct {
	sdktrace.SpanExporter
	log    logrus.FieldLogger
	redact func(string) string

	mu     sync.Mutex
	lost   int // spans since the last line
	logged time.Time
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error, because the SDK would print each one.
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += len(spans)
	if now := time.Now(); e.logged.IsZero() || now.Sub(e.logged) >= exportInterval {
		e.log.WithFields(logrus.Fields{"error": e.redact(err.Error()), "spans": e.lost}).Warn("spans not exported: the collector does not take them")
		e.lost, e.logged = 0, now
	}
	return nil
}
