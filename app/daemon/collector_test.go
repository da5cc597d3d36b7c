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

func TestTheEnvironmentTurnsTracingOn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env      map[string]string
		endpoint string
		said     bool // why, or a warning
	}{
		{map[string]string{}, "", false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, "", false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, "http://a", false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b"}, "http://b", false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "false"}, "http://a", false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_EXPORTER": "none"}, "", true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_SDK_DISABLED": "True"}, "", true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://a:4317", true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http://a", false},
	} {
		endpoint, why, warning := collectorOf(func(name string) string { return test.env[name] })
		if endpoint != test.endpoint || (why+warning != "") != test.said {
			t.Errorf("%v: the endpoint is %q, why %q, warning %q", test.env, endpoint, why, warning)
		}
	}
	if got := withoutPassword("https://a:secret@b/c"); got != "https://a:xxxxx@b/c" {
		t.Error(got)
	}
	if got := withoutPassword("https://a:secret@b:x/"); got != "(not a URL)" {
		t.Error(got)
	}
}

type failingExporter struct{ sdktrace.SpanExporter }

func (failingExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("refused")
}

func TestLostSpansAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, lines := test.NewNullLogger()
		e := &loggedExporter{SpanExporter: failingExporter{}, log: log}
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
