package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

type failingExporter struct{ sdktrace.SpanExporter }

func (failingExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("refused")
}

func TestLostSpansAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, lines := test.NewNullLogger()
		e := &loggedExporter{SpanExporter: failingExporter{}, log: log, redact: (&traceExport{}).redact}
		spans := tracetest.SpanStubs{{Name: "a"}, {Name: "b"}}.Snapshots()
		for range 3 * 60 {
			if err := e.ExportSpans(t.Context(), spans); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		var counts []any
		for _, line := range lines.AllEntries() {
			counts = append(counts, line.Data["spans"])
		}
		if len(counts) != 3 || counts[0] != 2 || counts[1] != 120 {
			t.Errorf("the lines count %v spans", counts)
		}
	})
}
