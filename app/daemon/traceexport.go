package daemon

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// traceExport is what the environment says about the export of traces, by the specification of OpenTelemetry. The daemon
// checks the variables itself: the SDK would end the process for some values, and would print others, which may be
// secrets.
type traceExport struct {
	endpoint *url.URL // nil if tracing is off
	// why is the reason if a variable turns tracing off although the environment has an endpoint.
	why string
	// ignored says what is wrong with the variables that have no effect, without their values.
	ignored []string
	export  []otlptracehttp.Option
	batch   []sdktrace.BatchSpanProcessorOption
	secrets []string // texts that no line may contain, the longest first
}

// The names of the variables for traces. Those for all signals apply if they are not set.
const (
	tracesOnly = "OTEL_EXPORTER_OTLP_TRACES_"
	allSignals = "OTEL_EXPORTER_OTLP_"
)

// numbers are the variables that are whole numbers, with the least and the most. Times are in milliseconds. The SDK reads
// the limits of spans, where any negative number means none.
var numbers = []struct {
	name        string
	least, most int
}{
	{tracesOnly + "TIMEOUT", 1, mostTime}, {allSignals + "TIMEOUT", 1, mostTime},
	{"OTEL_BSP_MAX_QUEUE_SIZE", 1, mostSpans}, {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, mostSpans},
	{"OTEL_BSP_SCHEDULE_DELAY", 1, mostTime}, {"OTEL_BSP_EXPORT_TIMEOUT", 1, mostTime},
	{"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", math.MinInt, math.MaxInt}, {"OTEL_ATTRIBUTE_COUNT_LIMIT", math.MinInt, math.MaxInt},
	{"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", math.MinInt, math.MaxInt}, {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", math.MinInt, math.MaxInt},
	{"OTEL_SPAN_EVENT_COUNT_LIMIT", math.MinInt, math.MaxInt}, {"OTEL_SPAN_LINK_COUNT_LIMIT", math.MinInt, math.MaxInt},
	{"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", math.MinInt, math.MaxInt}, {"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", math.MinInt, math.MaxInt},
}

const (
	mostSpans = 1_000_000
	mostTime  = 24 * 60 * 60 * 1000
)

// traceExportOf reads the environment.
func traceExportOf(env func(string) string) *traceExport {
	c := &traceExport{}
	get := func(name string) string { return strings.TrimSpace(env(name)) }
	name := tracesOnly + "ENDPOINT"
	if get(name) == "" {
		name = allSignals + "ENDPOINT"
	}
	text := get(name)
	exporters := strings.FieldsFunc(get("OTEL_TRACES_EXPORTER"), func(r rune) bool { return r == ',' || r == ' ' })
	switch {
	case text == "":
		return c
	case strings.EqualFold(get("OTEL_SDK_DISABLED"), "true"):
		c.why = "OTEL_SDK_DISABLED is true"
		return c
	case len(exporters) > 0 && !slices.Contains(exporters, "otlp"):
		c.why = "OTEL_TRACES_EXPORTER does not contain otlp"
		return c
	}
	for _, other := range exporters {
		if other != "otlp" {
			c.ignore("OTEL_TRACES_EXPORTER", "has exporters besides otlp, which the daemon does not have")
			break
		}
	}
	endpoint, err := url.Parse(text)
	if err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Hostname() == "" {
		c.ignore(name, "is not a URL such as http://localhost:4318, so tracing is off")
		return c
	}
	c.use(endpoint, name)
	c.readHeaders(get)
	c.readNumbers(get)
	c.checkFiles(get)
	c.checkSampler(get)
	const only = "http/protobuf"
	if cmp.Or(get(tracesOnly+"PROTOCOL"), get(allSignals+"PROTOCOL"), only) != only {
		c.ignore("OTEL_EXPORTER_OTLP_PROTOCOL", "must be "+only+": a collector receives it at the port 4318")
	}
	if compression := cmp.Or(get(tracesOnly+"COMPRESSION"), get(allSignals+"COMPRESSION"), "none"); compression != "gzip" && compression != "none" {
		c.ignore("OTEL_EXPORTER_OTLP_COMPRESSION", "must be gzip or none")
	}
	slices.SortFunc(c.secrets, func(a, b string) int { return len(b) - len(a) })
	return c
}

func (c *traceExport) ignore(variable, wrong string) {
	c.ignored = append(c.ignored, variable+" "+wrong)
}

// use sets the endpoint. The variable for all signals has a URL to which the path of traces is added.
func (c *traceExport) use(endpoint *url.URL, variable string) {
	const standard = "/v1/traces"
	if endpoint.RawQuery != "" || endpoint.User != nil {
		c.ignore(variable, "has a query or a user, which are not sent; use OTEL_EXPORTER_OTLP_HEADERS")
	}
	if variable == allSignals+"ENDPOINT" {
		endpoint.Path = path.Join(endpoint.Path, standard)
	} else if endpoint.Path == "" {
		endpoint.Path = "/"
	}
	for _, secret := range []string{endpoint.EscapedPath(), endpoint.Path} {
		if secret != "/" && secret != standard {
			c.secrets = append(c.secrets, secret)
		}
	}
	c.endpoint = &url.URL{Scheme: endpoint.Scheme, Host: endpoint.Host, Path: endpoint.Path}
	c.export = append(c.export, otlptracehttp.WithEndpointURL(c.endpoint.String()))
}

// origin returns the endpoint without its path, which may contain a key.
func (c *traceExport) origin() string { return c.endpoint.Scheme + "://" + c.endpoint.Host }

// readHeaders reads a list of NAME=VALUE, in which values are percent-encoded. An entry that is not valid is ignored.
func (c *traceExport) readHeaders(get func(string) string) {
	name := tracesOnly + "HEADERS"
	if get(name) == "" {
		name = allSignals + "HEADERS"
	}
	headers := make(map[string]string)
	for i, entry := range strings.Split(get(name), ",") {
		if strings.TrimSpace(entry) == "" {
			continue
		}
		key, value, found := strings.Cut(entry, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		key = strings.TrimSpace(key)
		if !found || err != nil || !isToken(key) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			c.ignore(name, fmt.Sprintf("has an entry that is not NAME=VALUE with a percent-encoded value, number %d; the header is not sent", i+1))
			continue
		}
		headers[key] = value
		const short = 4 // a shorter value would be found in other words
		for _, secret := range []string{value, url.PathEscape(value)} {
			if len(secret) >= short {
				c.secrets = append(c.secrets, secret)
			}
		}
	}
	c.export = append(c.export, otlptracehttp.WithHeaders(headers))
}

// isToken reports whether a text is the name of a header by RFC 9110, section 5.6.2.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

func (c *traceExport) readNumbers(get func(string) string) {
	valid := make(map[string]int)
	for _, number := range numbers {
		text := get(number.name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < number.least || n > number.most {
			wrong := "must be a whole number"
			if number.most < math.MaxInt {
				wrong += fmt.Sprintf(" from %d to %d", number.least, number.most)
			}
			c.ignore(number.name, wrong)
			continue
		}
		valid[number.name] = n
	}
	or := func(standard int, names ...string) int {
		for _, name := range names {
			if n, ok := valid[name]; ok {
				return n
			}
		}
		return standard
	}
	waits := or(sdktrace.DefaultMaxQueueSize, "OTEL_BSP_MAX_QUEUE_SIZE")
	ms := func(standard int, names ...string) time.Duration {
		return time.Duration(or(standard, names...)) * time.Millisecond
	}
	c.batch = []sdktrace.BatchSpanProcessorOption{
		sdktrace.WithMaxQueueSize(waits),
		sdktrace.WithMaxExportBatchSize(min(waits, or(sdktrace.DefaultMaxExportBatchSize, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"))),
		sdktrace.WithBatchTimeout(ms(sdktrace.DefaultScheduleDelay, "OTEL_BSP_SCHEDULE_DELAY")),
		sdktrace.WithExportTimeout(ms(sdktrace.DefaultExportTimeout, "OTEL_BSP_EXPORT_TIMEOUT")),
	}
	const exportTime = 10_000 // of the specification
	c.export = append(c.export, otlptracehttp.WithTimeout(ms(exportTime, tracesOnly+"TIMEOUT", allSignals+"TIMEOUT")))
}

// checkFiles checks the files with certificates, which the exporter reads.
func (c *traceExport) checkFiles(get func(string) string) {
	for _, prefix := range []string{tracesOnly, allSignals} {
		if name := prefix + "CERTIFICATE"; get(name) != "" {
			pem, err := os.ReadFile(get(name))
			if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
				err = errors.New("it has no certificate")
			}
			if err != nil {
				c.ignore(name, "names a file that cannot be used: "+err.Error())
			}
		}
		certificate, key := get(prefix+"CLIENT_CERTIFICATE"), get(prefix+"CLIENT_KEY")
		if certificate == "" && key == "" {
			continue
		}
		if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
			c.ignore(prefix+"CLIENT_CERTIFICATE", "and "+prefix+"CLIENT_KEY name files that cannot be used: "+err.Error())
		}
	}
}

// checkSampler checks the variables of the sampler, which the SDK reads.
func (c *traceExport) checkSampler(get func(string) string) {
	const variable = "OTEL_TRACES_SAMPLER"
	samplers := []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}
	sampler := strings.ToLower(get(variable))
	if sampler != "" && !slices.Contains(samplers, sampler) {
		c.ignore(variable, "must be one of "+strings.Join(samplers, ", ")+"; all traces are recorded")
	}
	if text := get(variable + "_ARG"); text != "" && strings.HasSuffix(sampler, "traceidratio") {
		if share, err := strconv.ParseFloat(text, 64); err != nil || !(share >= 0 && share <= 1) {
			c.ignore(variable+"_ARG", "must be a number from 0 to 1; all traces are recorded")
		}
	}
}

// redact returns a text without secrets.
func (c *traceExport) redact(text string) string {
	for _, secret := range c.secrets {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return text
}

// CheckTracing returns what is wrong with the variables of OpenTelemetry in the environment, one line for each. Such a
// variable has no effect. No line contains the value of a variable that may be secret.
func CheckTracing(env func(string) string) []string {
	return traceExportOf(env).ignored
}
