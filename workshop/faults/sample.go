package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sample has the values that were measured at one time, by series.
type Sample struct {
	At     time.Time
	Values map[string]float64
}

// sampleEvery is the interval between two samples.
const sampleEvery = 10 * time.Second

// metricsOfInterest has the metrics of a process that show a leak, with their names in the report.
var metricsOfInterest = map[string]string{
	"process_resident_memory_bytes": "memory, MiB",
	"go_goroutines":                 "goroutines",
	"process_open_fds":              "open files",
}

const mebibyte = 1 << 20

// sample measures until ctx is done. A sample lacks the values that a fault made impossible to measure.
func (c *campaign) sample(ctx context.Context) []Sample {
	var samples []Sample
	for {
		sleep(ctx, sampleEvery)
		if ctx.Err() != nil {
			return samples
		}
		s := Sample{At: time.Now(), Values: make(map[string]float64)}
		for _, role := range []string{roleWorker, roleJanitor} {
			c.sampleProcess(ctx, c.deployment.of(role)[0], s.Values) // no fault of a soak hits the first slot of a role
		}
		c.sampleDatabase(ctx, s.Values)
		c.sampleBroker(ctx, s.Values)
		samples = append(samples, s)
	}
}

// sampleProcess reads the metrics of a process.
func (c *campaign) sampleProcess(ctx context.Context, s *slot, into map[string]float64) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.ip+":8480/metrics", nil)
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		title, wanted := metricsOfInterest[name]
		if !wanted {
			continue
		}
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			if name == "process_resident_memory_bytes" {
				value /= mebibyte
			}
			into[s.role+": "+title] = value
		}
	}
}

// sampleDatabase queries the sizes of the tables, with their indexes, and the number of connections.
func (c *campaign) sampleDatabase(ctx context.Context, into map[string]float64) {
	const query = `select 'database: ' || relname || ', MiB', pg_total_relation_size(oid) / 1048576.0 from pg_class
		where relkind = 'r' and relnamespace = 'holdfast'::regnamespace and relname in ('tasks', 'workers', 'outbox', 'attempts')
		union all select 'database: connections', count(*) from pg_stat_activity where application_name = 'holdfast'`
	out, err := c.servers.postgres(ctx, "psql", "-AtF=", "-c", query)
	if err != nil {
		return
	}
	for _, line := range strings.Split(out, "\n") {
		title, text, _ := strings.Cut(line, "=")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			into[title] = value
		}
	}
}

// sampleBroker counts the messages in each kind of AMQP queue, and the connections.
func (c *campaign) sampleBroker(ctx context.Context, into map[string]float64) {
	topology := c.backend.Topology
	queues := map[string][]string{
		"broker: messages in main and requeue": topology.Queue(queue), "broker: manifests in holding": topology.HoldingQueueNames(),
		"broker: messages in rescue": {topology.Rescue()}, "broker: messages in quarantine": {topology.Quarantine()},
	}
	depths, err := c.backend.Broker.Depths(ctx, slices.Concat(slices.Collect(maps.Values(queues))...))
	if err != nil {
		return
	}
	for title, names := range queues {
		for _, name := range names {
			into[title] += float64(depths[name].Ready)
		}
	}
	out, err := c.servers.cluster(ctx, "ctl", "1", "list_connections", "-q", "pid")
	if err == nil {
		into["broker: connections"] = float64(len(strings.Fields(out)))
	}
}

// Trend compares a series early in a soak with the same series at the end.
type Trend struct {
	Series            string
	Early, Late, Most float64 // medians of the second and the last fifth of the time, and the largest value
}

// Flat reports whether the series has grown by at most 20 % plus 5. It returns false if the series was not measured in
// the second or in the last fifth of the time.
func (t Trend) Flat() bool { return t.Late <= t.Early*1.2+5 }

// Trends compares the second fifth of the samples with the last fifth. The first fifth is the warm-up. Trends returns
// nil if there are fewer than five samples.
func Trends(samples []Sample) []Trend {
	fifth := len(samples) / 5
	if fifth == 0 {
		return nil
	}
	names := make(map[string]bool)
	for _, s := range samples {
		for name := range s.Values {
			names[name] = true
		}
	}
	var trends []Trend
	for _, name := range slices.Sorted(maps.Keys(names)) {
		t := Trend{Series: name, Early: median(samples[fifth:2*fifth], name), Late: median(samples[len(samples)-fifth:], name)}
		for _, s := range samples {
			t.Most = max(t.Most, s.Values[name])
		}
		trends = append(trends, t)
	}
	return trends
}

// median returns the median of a series, or NaN if the series was not measured.
func median(samples []Sample, series string) float64 {
	var values []float64
	for _, s := range samples {
		if value, measured := s.Values[series]; measured {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// WriteTrends writes a Markdown table with a row for each series.
func WriteTrends(out io.Writer, trends []Trend) {
	fmt.Fprintln(out, "| | early | late | maximum | flat |")
	fmt.Fprintln(out, "|---|---|---|---|---|")
	for _, t := range trends {
		fmt.Fprintf(out, "| %s | %.1f | %.1f | %.1f | %t |\n", t.Series, t.Early, t.Late, t.Most, t.Flat())
	}
}
