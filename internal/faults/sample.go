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

// Sample is what was measured at one moment: a value by series.
type Sample struct {
	At     time.Time
	Values map[string]float64
}

// sampleEvery is short beside a soak and long beside what a sample costs.
const sampleEvery = 10 * time.Second

// metricsOfInterest are those of a process that show a leak, by what they are called in a report.
var metricsOfInterest = map[string]string{
	"process_resident_memory_bytes": "memory, MiB",
	"go_goroutines":                 "goroutines",
	"process_open_fds":              "open files",
}

const mebibyte = 1 << 20

// sample measures until ctx is done. What cannot be measured at a moment, for it is just being broken, is left out.
func (c *campaign) sample(ctx context.Context) []Sample {
	var samples []Sample
	for {
		sleep(ctx, sampleEvery)
		if ctx.Err() != nil {
			return samples
		}
		s := Sample{At: time.Now(), Values: make(map[string]float64)}
		for _, role := range []string{roleWorker, roleJanitor} {
			c.sampleProcess(ctx, c.crew.of(role)[0], s.Values) // the one that soaks do not touch
		}
		c.sampleDatabase(ctx, s.Values)
		c.sampleBroker(ctx, s.Values)
		samples = append(samples, s)
	}
}

func (c *campaign) sampleProcess(ctx context.Context, s *seat, into map[string]float64) {
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

// sampleDatabase asks for the sizes of the tables with their indexes, and for the connections.
func (c *campaign) sampleDatabase(ctx context.Context, into map[string]float64) {
	const question = `select 'database: ' || relname || ', MiB', pg_total_relation_size(oid) / 1048576.0 from pg_class
		where relkind = 'r' and relnamespace = 'holdfast'::regnamespace and relname in ('tasks', 'runs', 'outbox', 'attempts')
		union all select 'database: connections', count(*) from pg_stat_activity where application_name = 'holdfast'`
	out, err := c.servers.postgres(ctx, "psql", "-AtF=", "-c", question)
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

// sampleBroker counts messages in all queues of a kind, and connections.
func (c *campaign) sampleBroker(ctx context.Context, into map[string]float64) {
	topology := c.backend.Topology
	queues := map[string][]string{
		"broker: messages in main and again": topology.Lane(lane), "broker: manifests held": topology.Holds(),
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

// Trend compares a series early in a soak with its end.
type Trend struct {
	Series            string
	Early, Late, Most float64 // medians of a fifth of the time each, and the largest value
}

// Flat reports whether the series has not grown by more than a fifth, or by a handful. One that was not measured early or
// late is not known to be flat.
func (t Trend) Flat() bool { return t.Late <= t.Early*1.2+5 }

// Trends compares the second fifth of the samples with the last one; the first fifth is for warming up.
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

// median is not a number if nothing was measured.
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

// WriteTrends prints a line for each series.
func WriteTrends(out io.Writer, trends []Trend) {
	fmt.Fprintln(out, "| | early | at the end | at most | flat |")
	fmt.Fprintln(out, "|---|---|---|---|---|")
	for _, t := range trends {
		fmt.Fprintf(out, "| %s | %.1f | %.1f | %.1f | %t |\n", t.Series, t.Early, t.Late, t.Most, t.Flat())
	}
}
