package daemon

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// family is a family of metrics that the daemon exports.
type family struct {
	kind   string                     // COUNTER, GAUGE or HISTOGRAM
	values map[string]map[string]bool // the values of each label
}

// allStore is a store in which each gauge has a value.
type allStore struct{ desk.Store }

func (allStore) Now(context.Context) (time.Time, error) { return time.Unix(1e9, 0), nil }

func (allStore) CountDeathGroups(context.Context) (store.GroupCounts, error) {
	return store.GroupCounts{}, nil
}

func (allStore) VerifyResults(context.Context) (results []store.VerifyResult, err error) {
	for _, part := range store.VerifyParts() {
		results = append(results, store.VerifyResult{Part: part})
	}
	return results, nil
}

func (allStore) Gates(context.Context) ([]store.Gate, error) { return nil, nil }

func (allStore) Limits(context.Context) ([]store.LimitUse, error) {
	return []store.LimitUse{{Limit: store.Limit{Rate: store.Rate{Count: 1, Per: time.Second}, Concurrency: 1}}}, nil
}

func (allStore) OrderedKeys(context.Context, bool, int) ([]store.OrderedKey, error) { return nil, nil }

func (allStore) TopicQueues(context.Context) ([]store.TopicQueue, error) {
	return []store.TopicQueue{{Queue: "default"}}, nil
}

func (allStore) DuePlans(context.Context, []store.PlanKind, time.Duration, int) ([]store.Plan, error) {
	return nil, nil
}

func (allStore) PlanByName(context.Context, store.PlanKind, string) (store.Plan, error) {
	return store.Plan{}, holdfast.ErrNotFound
}

func (allStore) ListPlans(_ context.Context, f store.PlanFilter) ([]store.Plan, error) {
	if f.Kind == store.SourceKind {
		source := plan.Source{Every: new(plan.Duration(time.Hour))}
		return []store.Plan{source.Plan("shop", plan.Source{}, time.Unix(0, 0))}, nil
	}
	return nil, nil
}

func (allStore) Queues(context.Context) ([]store.Queue, error) {
	return []store.Queue{{Name: "default"}}, nil
}

func (allStore) BlockedByQueue(context.Context) (store.BlockedCounts, error) {
	return store.BlockedCounts{}, nil
}

func (allStore) Workers(context.Context, bool) ([]store.Worker, error) { return nil, nil }

func (allStore) WALSize() (int64, bool) { return 0, false }

// described is a registerer that also keeps the names of the metrics.
type described struct {
	prometheus.Registerer
	names map[string]bool
}

var descName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (d described) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() { defer close(descs); c.Describe(descs) }()
		for desc := range descs {
			d.names[descName.FindStringSubmatch(desc.String())[1]] = true
		}
	}
	d.Registerer.MustRegister(collectors...)
}

// exported returns all families that a daemon can export, by name.
func exported(t *testing.T) map[string]family {
	t.Helper()
	registry := prometheus.NewRegistry()
	all := described{registry, make(map[string]bool)}
	observer, requests := newMetrics(all), newRequestMetrics(all)
	registerCollectors(all, &app.Backend{Store: allStore{}}, true)
	observer.Observe(holdfast.Observation{Kind: holdfast.ObservedClaimed, Queue: "default", Type: "http", Count: 1})
	for _, event := range []holdfast.Event{
		holdfast.EventComplete, holdfast.EventRetry, holdfast.EventDefer, holdfast.EventInterrupt, holdfast.EventGiveUp,
		holdfast.EventCancel,
	} {
		settled := holdfast.Observation{Kind: holdfast.ObservedSettled, Queue: "default", Type: "http", Event: event, Count: 1}
		observer.Observe(settled)
	}
	for _, status := range []int{200, 300, 400, 500} {
		requests.observe("GET", "/v1/tasks", status, time.Second)
	}
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	families := make(map[string]family)
	for _, f := range gathered {
		found := family{f.GetType().String(), make(map[string]map[string]bool)}
		for _, metric := range f.GetMetric() {
			for _, label := range metric.GetLabel() {
				if found.values[label.GetName()] == nil {
					found.values[label.GetName()] = make(map[string]bool)
				}
				found.values[label.GetName()][label.GetValue()] = true
			}
		}
		families[f.GetName()] = found
	}
	for name := range all.names {
		if _, found := families[name]; !found && strings.HasPrefix(name, "holdfast_") {
			t.Errorf("the test has no data for the metric %s", name)
		}
	}
	return families
}

// targetLabels are the labels that Prometheus adds to each series of a process.
var targetLabels = []string{"job", "instance"}

// closedLabels are labels with a fixed set of values. A selector with another value never matches.
var closedLabels = []string{"state", "kind", "code", "part", "event", "status"}

// checkExpression checks that an expression parses, and that each metric, label and fixed value in it exists. It returns
// the families and the labels of the result.
func checkExpression(t *testing.T, families map[string]family, where, expression string) (used, labels map[string]bool) {
	t.Helper()
	parsed, err := parsePromQL(expression)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, expression)
		return nil, nil
	}
	used, known := make(map[string]bool), make(map[string]bool)
	for _, label := range targetLabels {
		known[label] = true
	}
	for _, s := range parsed.selectors {
		name := s.metric
		f, found := families[name]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(s.metric, suffix); cut && families[base].kind == "HISTOGRAM" {
				name, f, found = base, families[base], true
				known["le"] = known["le"] || suffix == "_bucket"
			}
		}
		if !found || f.kind == "HISTOGRAM" && name == s.metric {
			t.Errorf("%s: the daemon does not export the metric %s", where, s.metric)
			continue
		}
		used[name] = true
		if (s.function == "rate" || s.function == "increase") != (f.kind != "GAUGE") && s.ranged {
			t.Errorf("%s: %s of %s, which is a %s", where, s.function, s.metric, f.kind)
		}
		for label := range f.values {
			known[label] = true
		}
		for _, m := range s.matchers {
			values, has := f.values[m.label]
			if !has && !slices.Contains(targetLabels, m.label) {
				t.Errorf("%s: the metric %s has no label %s", where, s.metric, m.label)
			}
			for _, value := range strings.Split(m.value, "|") {
				if has && slices.Contains(closedLabels, m.label) && !values[value] {
					t.Errorf("%s: no %s has the value %s", where, m.label, value)
				}
			}
		}
	}
	for _, label := range parsed.grouping {
		if !known[label] {
			t.Errorf("%s: no metric of %s has the label %s", where, expression, label)
		}
	}
	return used, parsed.labels()
}

// readDeployed returns the text of a file of the module.
func readDeployed(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const runbooks = "https://github.com/holdfastq/holdfast/blob/main/docs/troubleshoot.md#"

var (
	templateLabel = regexp.MustCompile(`\{\{ ?\$labels\.(\w+)`)
	alertSection  = regexp.MustCompile(`(?m)^### (Holdfast\w+)$`)
)

// The alerting rules have the fields that Prometheus knows, and use metrics that exist. docs/troubleshoot.md has exactly
// one section for each alert.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	families := exported(t)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert       string
				Expr        string
				For         string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(readDeployed(t, "deploy/prometheus/holdfast-alerts.yml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	page := readDeployed(t, "docs/troubleshoot.md")
	var documented, alerts []string
	for _, section := range alertSection.FindAllStringSubmatch(page, -1) {
		documented = append(documented, section[1])
	}
	wait := regexp.MustCompile(`^([1-9]\d*[smhd])?$`)
	groups := make(map[string]bool)
	for _, group := range file.Groups {
		if group.Name == "" || groups[group.Name] || len(group.Rules) == 0 {
			t.Errorf("the group %q has no name of its own, or no rule", group.Name)
		}
		groups[group.Name] = true
		for _, rule := range group.Rules {
			alerts = append(alerts, rule.Alert)
			_, labels := checkExpression(t, families, rule.Alert, rule.Expr)
			if !wait.MatchString(rule.For) {
				t.Errorf("%s: invalid duration %q", rule.Alert, rule.For)
			}
			if severity := rule.Labels["severity"]; len(rule.Labels) != 1 || severity != "warning" && severity != "critical" {
				t.Errorf("%s: the labels are %v", rule.Alert, rule.Labels)
			}
			if keys := slices.Sorted(maps.Keys(rule.Annotations)); !slices.Equal(keys, []string{"description", "runbook_url", "summary"}) {
				t.Errorf("%s: the annotations are %q", rule.Alert, keys)
			}
			for key, text := range rule.Annotations {
				if text == "" {
					t.Errorf("%s: the annotation %s is empty", rule.Alert, key)
				}
				for _, label := range templateLabel.FindAllStringSubmatch(text, -1) {
					if !labels[label[1]] {
						t.Errorf("%s: the result has no label %s", rule.Alert, label[1])
					}
				}
			}
			if url := rule.Annotations["runbook_url"]; url != runbooks+strings.ToLower(rule.Alert) {
				t.Errorf("%s: the runbook is %s", rule.Alert, url)
			}
		}
	}
	if !slices.Equal(alerts, documented) {
		t.Errorf("docs/troubleshoot.md has sections for the alerts\n%q, but the rules are\n%q", documented, alerts)
	}
}

// dashboard is the part of a Grafana dashboard that the tests check.
type dashboard struct {
	ID            *int   `json:"id"`
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name, Type, Definition string
			Datasource             datasource
		}
	}
	Panels []panel
}

type datasource struct{ Type, UID string }

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               datasource
	GridPos                  struct{ H, W, X, Y int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                datasource
	}
}

var (
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)
	variable    = regexp.MustCompile(`\$\{?(\w+)`)
)

// The dashboard uses metrics that exist, and shows each metric of Holdfast. Each panel has a title, a unit and a
// description. The dashboard names no data source and has no id, so that it can be imported anywhere.
func TestDashboard(t *testing.T) {
	t.Parallel()
	families := exported(t)
	text := readDeployed(t, "deploy/grafana/holdfast.json")
	var d dashboard
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if d.ID != nil || d.UID != "" || d.Title == "" || d.SchemaVersion < 39 {
		t.Errorf("the dashboard has the id %v, the uid %q, the title %q and the schema %d", d.ID, d.UID, d.Title, d.SchemaVersion)
	}
	source := datasource{"prometheus", "${datasource}"}
	known := map[string]bool{"__rate_interval": true, "__all": true}
	for _, v := range d.Templating.List {
		known[v.Name] = true
		if v.Type == "datasource" {
			continue
		}
		query := labelValues.FindStringSubmatch(v.Definition)
		if v.Type != "query" || query == nil || v.Datasource != source {
			t.Errorf("the variable %s is %+v", v.Name, v)
			continue
		}
		checkExpression(t, families, "the variable "+v.Name, "count by ("+query[2]+") ("+query[1]+")")
	}
	for _, name := range []string{"datasource", "job", "instance", "queue"} {
		if !known[name] {
			t.Errorf("the dashboard lacks the variable %s", name)
		}
	}
	for _, v := range variable.FindAllStringSubmatch(text, -1) {
		if !known[v[1]] {
			t.Errorf("the variable %s does not exist", v[1])
		}
	}
	shown, ids := make(map[string]bool), make(map[int]bool)
	for _, p := range d.Panels {
		if p.Title == "" || p.ID == 0 || ids[p.ID] || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("the panel %d %q has no title, no place, or no id of its own", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || p.Datasource != source {
			t.Errorf("the panel %q has no description, unit, query or data source", p.Title)
		}
		for _, target := range p.Targets {
			used, labels := checkExpression(t, families, p.Title, target.Expr)
			maps.Copy(shown, used)
			if target.Datasource != source || target.RefID == "" || target.LegendFormat == "" {
				t.Errorf("the panel %q: the query is %+v", p.Title, target)
			}
			for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !labels[label[1]] {
					t.Errorf("the panel %q: the result of %s has no label %s", p.Title, target.Expr, label[1])
				}
			}
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "holdfast_") && !shown[name] {
			t.Errorf("no panel shows the metric %s", name)
		}
	}
}
