package daemon_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app/daemon"
)

// Each variable that is not valid is named, and no line contains a value.
func TestVariablesOfTracingAreChecked(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	missing := filepath.Join(t.TempDir(), "missing")
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for _, test := range []struct {
		env  string
		want string // the begin of the only line; "" for none
	}{
		{"", ""},
		{endpoint, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT= http://127.0.0.1:4318 ", ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://collector.example/v1/traces", ""},
		{endpoint + ";OTEL_TRACES_EXPORTER=otlp", ""},
		{endpoint + ";OTEL_TRACES_EXPORTER=otlp,console", "OTEL_TRACES_EXPORTER has exporters besides otlp"},
		{endpoint + ";OTEL_TRACES_EXPORTER=none", ""},
		{endpoint + ";OTEL_SDK_DISABLED=TRUE", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4318", "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=grpc://" + secret, "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is not a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1/?key=" + secret, "OTEL_EXPORTER_OTLP_ENDPOINT has a query or a user"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://me:" + secret + "@127.0.0.1", "OTEL_EXPORTER_OTLP_ENDPOINT has a query or a user"},
		{endpoint + ";OTEL_EXPORTER_OTLP_HEADERS=api-key=" + secret + ", x=a%20b,", ""},
		{endpoint + ";OTEL_EXPORTER_OTLP_HEADERS=api-key: " + secret, "OTEL_EXPORTER_OTLP_HEADERS has an entry that is not NAME=VALUE"},
		{endpoint + `;OTEL_EXPORTER_OTLP_HEADERS={"api-key":"` + secret + `"}`, "OTEL_EXPORTER_OTLP_HEADERS has an entry that is not NAME=VALUE"},
		{endpoint + ";OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=1,b=" + secret + "%zz", "OTEL_EXPORTER_OTLP_TRACES_HEADERS has an entry that is not NAME=VALUE with a percent-encoded value, number 2"},
		{endpoint + ";OTEL_EXPORTER_OTLP_HEADERS=a=" + secret + "%0d%0ax", "OTEL_EXPORTER_OTLP_HEADERS has an entry"},
		{endpoint + ";OTEL_BSP_MAX_QUEUE_SIZE=-1", "OTEL_BSP_MAX_QUEUE_SIZE must be a whole number from 1 to 1000000"},
		{endpoint + ";OTEL_BSP_MAX_QUEUE_SIZE=9223372036854775807", "OTEL_BSP_MAX_QUEUE_SIZE must be"},
		{endpoint + ";OTEL_BSP_MAX_EXPORT_BATCH_SIZE=-1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE must be"},
		{endpoint + ";OTEL_BSP_MAX_QUEUE_SIZE=10;OTEL_BSP_MAX_EXPORT_BATCH_SIZE=100", ""},
		{endpoint + ";OTEL_BSP_SCHEDULE_DELAY=0", "OTEL_BSP_SCHEDULE_DELAY must be"},
		{endpoint + ";OTEL_BSP_EXPORT_TIMEOUT=5s", "OTEL_BSP_EXPORT_TIMEOUT must be"},
		{endpoint + ";OTEL_EXPORTER_OTLP_TIMEOUT=-5", "OTEL_EXPORTER_OTLP_TIMEOUT must be"},
		{endpoint + ";OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=many", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a whole number"},
		{endpoint + ";OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=-7", ""},
		{endpoint + ";OTEL_TRACES_SAMPLER=sometimes", "OTEL_TRACES_SAMPLER must be one of always_on"},
		{endpoint + ";OTEL_TRACES_SAMPLER=traceidratio;OTEL_TRACES_SAMPLER_ARG=NaN", "OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1"},
		{endpoint + ";OTEL_TRACES_SAMPLER=parentbased_traceidratio;OTEL_TRACES_SAMPLER_ARG=0.5", ""},
		{endpoint + ";OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"},
		{endpoint + ";OTEL_EXPORTER_OTLP_COMPRESSION=zstd", "OTEL_EXPORTER_OTLP_COMPRESSION must be gzip or none"},
		{endpoint + ";OTEL_EXPORTER_OTLP_CERTIFICATE=" + missing, "OTEL_EXPORTER_OTLP_CERTIFICATE names a file that cannot be used"},
		{endpoint + ";OTEL_EXPORTER_OTLP_CLIENT_KEY=" + missing, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY name files"},
	} {
		lines := daemon.CheckTracing(func(name string) string {
			for _, pair := range strings.Split(test.env, ";") {
				if value, ok := strings.CutPrefix(pair, name+"="); ok {
					return value
				}
			}
			return ""
		})
		if len(lines) > 1 || (len(lines) == 1) != (test.want != "") || len(lines) == 1 && !strings.HasPrefix(lines[0], test.want) || strings.Contains(strings.Join(lines, "\n"), secret) {
			t.Errorf("%s: %q, want %q", test.env, lines, test.want)
		}
	}
}

// A daemon starts whatever the variables are, and its log has no secret, also if the collector refuses the spans.
func TestTracingPrintsNoSecret(t *testing.T) {
	const path, key = "/secret-path", "hunter2"
	refused := make(chan string, 1)
	c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case refused <- r.URL.Path + " " + r.Header.Get("Api-Key"):
		default:
		}
		http.Error(w, "no: "+r.Header.Get("Api-Key"), http.StatusForbidden)
	}))
	defer c.Close()
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL + path, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=" + key + ",other: " + key,
		"OTEL_BSP_MAX_QUEUE_SIZE": "-1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "-1", "OTEL_BSP_SCHEDULE_DELAY": "1",
		"OTEL_EXPORTER_OTLP_TIMEOUT": key, "OTEL_TRACES_SAMPLER": key, "OTEL_SPAN_LINK_COUNT_LIMIT": key,
	} {
		t.Setenv(name, value)
	}
	log, lines := test.NewNullLogger()
	log.SetLevel(logrus.TraceLevel)
	b, _, stop := daemonOn(t, log)
	defer stop()
	p := b.Producer(nil)
	defer p.Close()
	if _, err := p.Enqueue(t.Context(), holdfast.NewTask{Type: "http", Payload: []byte(`{"url":"` + c.URL + `"}`)}); err != nil {
		t.Fatal(err)
	}
	got := make(chan struct{})
	go func() {
		defer close(got)
		for sent := range refused {
			if strings.HasPrefix(sent, path) {
				if sent != path+"/v1/traces "+key {
					t.Errorf("the collector got %q", sent)
				}
				return
			}
		}
	}()
	<-got
	stop()
	var texts []string
	for _, line := range lines.AllEntries() {
		text, err := line.String()
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
		if strings.Contains(text, path) || strings.Contains(text, key) {
			t.Errorf("a line has a secret: %s", text)
		}
	}
	for _, want := range []string{"tracing is on", "OTEL_BSP_MAX_QUEUE_SIZE must be", "OTEL_EXPORTER_OTLP_HEADERS has an entry", "spans not exported"} {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("no line says %q:\n%s", want, strings.Join(texts, ""))
		}
	}
}
