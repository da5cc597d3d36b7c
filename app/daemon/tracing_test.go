package daemon_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// collector receives traces over OTLP/HTTP.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*tracepb.Span
	resource map[string]string
	headers  http.Header // of the latest request
}

func newCollector(t *testing.T) *collector {
	c := &collector{resource: make(map[string]string)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unzipped
		}
		sent, err := io.ReadAll(body)
		var request collectorpb.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(sent, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.headers = r.Header
		for _, part := range request.ResourceSpans {
			for _, a := range part.Resource.Attributes {
				c.resource[a.Key] = text(a.Value)
			}
			for _, scope := range part.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func text(value *commonpb.AnyValue) string {
	switch v := value.Value.(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	}
	return "?"
}

func attributeOf(span *tracepb.Span, key string) string {
	for _, a := range span.Attributes {
		if a.Key == key {
			return text(a.Value)
		}
	}
	return ""
}

// daemonOn runs the daemon on a new file until stop is called.
func daemonOn(t *testing.T, log logrus.FieldLogger) (b *app.Backend, address string, stop func()) {
	t.Helper()
	cfg, err := configs.Load(configs.Options{Env: []string{
		"DATABASE_URL=sqlite:" + filepath.Join(t.TempDir(), "holdfast.db"), "HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_ROLES=worker,janitor,api",
		"HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8", "HOLDFAST_DEFAULTS_RETRY_STRATEGY=fixed", "HOLDFAST_DEFAULTS_RETRY_BASE=1ms",
	}})
	if err != nil {
		t.Fatal(err)
	}
	b, err = daemon.Open(t.Context(), cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	listening := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- daemon.Serve(ctx, daemon.Options{Backend: b, Version: "1.2", Listening: func(a net.Addr) { listening <- a }})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case a := <-listening:
		address = a.String()
	case <-time.After(slow.Patience()):
		t.Fatal("timeout: the daemon does not listen")
	}
	return b, address, stop
}

const (
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
)

// TestOneTraceFromTheAPIToTheTarget follows a task from a request to the API, through an attempt that fails and one that
// succeeds, to its target.
func TestOneTraceFromTheAPIToTheTarget(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	var mu sync.Mutex
	var received []http.Header
	calls := make(chan struct{}, 10)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		received = append(received, r.Header)
		n := len(received)
		mu.Unlock()
		switch {
		case r.URL.Path == "/gone":
			w.WriteHeader(http.StatusGone)
		case n == 1:
			w.WriteHeader(http.StatusInternalServerError)
		}
		calls <- struct{}{}
	}))
	defer target.Close()
	log, lines := test.NewNullLogger()
	_, address, stop := daemonOn(t, log)
	defer stop()
	for i, task := range []string{
		`{"type":"http","payload":{"url":"` + target.URL + `/"}}`,
		`{"type":"http","payload":{"url":"` + target.URL + `/gone"}}`,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/api/v1/tasks", strings.NewReader(task))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("traceparent", "00-"+callerTrace+"-"+callerSpan+"-01")
		request.Header.Set("tracestate", "vendor=1")
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s", resp.Status, answer)
		}
		for range 2 - i {
			select {
			case <-calls:
			case <-time.After(slow.Patience()):
				t.Fatal("timeout: the target was not called")
			}
		}
	}
	stop()

	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]string{callerSpan: "caller"}
	name := func(span *tracepb.Span) string {
		return strings.TrimSpace(span.Name + " " + attributeOf(span, "messaging.message.id") + " " + attributeOf(span, "holdfast.task.attempt"))
	}
	for _, span := range c.spans {
		names[fmt.Sprintf("%x", span.SpanId)] = name(span)
	}
	var got []string
	for _, span := range c.spans {
		line := name(span) + " < " + names[fmt.Sprintf("%x", span.ParentSpanId)]
		for _, link := range span.Links {
			line += ", link to " + names[fmt.Sprintf("%x", link.SpanId)]
		}
		if span.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			line += ", " + attributeOf(span, "error.type")
		}
		if trace := fmt.Sprintf("%x", span.TraceId); trace != callerTrace {
			line += " in another trace " + trace
		}
		got = append(got, line)
	}
	slices.Sort(got)
	want := []string{
		"process default 1 1 < send default 1, http_500", "process default 1 2 < send default 1, link to process default 1 1",
		"process default 2 1 < send default 2, http_410", "send default 1 < caller", "send default 2 < caller",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the spans are\n%q, want\n%q", got, want)
	}
	if c.headers.Get("X-Key") != "secret" || c.resource["service.name"] != "holdfast" ||
		c.resource["service.version"] != "1.2" || c.resource["deployment.environment.name"] != "test" {
		t.Errorf("headers %v, resource %v", c.headers, c.resource)
	}
	for i, want := range []string{"process default 1 1", "process default 1 2", "process default 2 1"} {
		parent := strings.Split(received[i].Get("traceparent"), "-")
		if len(parent) != 4 || parent[1] != callerTrace || names[parent[2]] != want || parent[3] != "01" ||
			received[i].Get("tracestate") != "vendor=1" {
			t.Errorf("request %d has the headers %v", i, received[i])
		}
	}
	dead := 0
	for _, line := range lines.AllEntries() {
		if line.Message == "task is dead" {
			dead++
			if line.Data["trace_id"] != callerTrace || names[fmt.Sprint(line.Data["span_id"])] != "process default 2 1" {
				t.Errorf("the line has the fields %v", line.Data)
			}
		}
	}
	if dead != 1 {
		t.Errorf("%d lines about dead tasks", dead)
	}
}

// TestACollectorThatDoesNotAnswer checks that tasks run, one line is logged and the stop takes little time.
func TestACollectorThatDoesNotAnswer(t *testing.T) {
	hanging := make(chan struct{})
	c := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hanging }))
	defer c.Close()
	defer close(hanging)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	called := make(chan http.Header, 1)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { called <- r.Header }))
	defer target.Close()
	log, lines := test.NewNullLogger()
	b, _, stop := daemonOn(t, log)
	defer stop()
	p := b.Producer(nil)
	defer p.Close()
	if _, err := p.Enqueue(t.Context(), holdfast.NewTask{Type: "http", Payload: []byte(`{"url":"` + target.URL + `"}`)}); err != nil {
		t.Fatal(err)
	}
	select {
	case header := <-called:
		if header.Get("traceparent") == "" {
			t.Errorf("the request has the headers %v", header)
		}
	case <-time.After(slow.Patience()):
		t.Fatal("timeout: the target was not called")
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > slow.Times(6*time.Second) {
		t.Errorf("the stop took %s", took)
	}
	if b.Tracer != nil {
		t.Error("the backend has a Tracer whose provider was shut down")
	}
	failed := 0
	for _, line := range lines.AllEntries() {
		if strings.HasPrefix(line.Message, "spans not exported") {
			failed++
		}
	}
	if failed == 0 || failed > 2 {
		t.Errorf("%d lines about spans", failed)
	}
}
