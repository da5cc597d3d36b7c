package configs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
)

func load(t *testing.T, env ...string) configs.Config {
	t.Helper()
	c, err := configs.Load(configs.Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPrecedenceOfStoredSettings sets one key in each combination of the four places.
func TestPrecedenceOfStoredSettings(t *testing.T) {
	t.Parallel()
	for set := range 1 << 4 {
		has := func(place int) bool { return set&(1<<place) != 0 }
		var env []string
		stored := make(map[string]string)
		want, origin := "10s", "default"
		if has(0) {
			env = append(env, "HOLDFAST_DEFAULTS_RETRY_BASE=1s")
			want, origin = "1s", "env HOLDFAST_DEFAULTS_RETRY_BASE"
		}
		if has(1) {
			stored["defaults.retry.base"] = "2s"
			want, origin = "2s", configs.StoreOrigin
		}
		general := want
		if has(2) {
			env = append(env, "HOLDFAST_TYPES_HTTP_RETRY_BASE=3s")
			want, origin = "3s", "env HOLDFAST_TYPES_HTTP_RETRY_BASE"
		}
		if has(3) {
			stored["types.http.retry.base"] = "4s"
			want, origin = "4s", configs.StoreOrigin
		}
		c, ignored := load(t, env...).WithStored(stored)
		if len(ignored) > 0 {
			t.Fatalf("%04b: ignored %v", set, ignored)
		}
		entry, err := c.TaskEntry("types.http.retry.base")
		if err != nil || entry.Value != want || entry.Origin != origin {
			t.Errorf("%04b: %+v, %v; want %s (%s)", set, entry, err, want, origin)
		}
		if got := c.Settings().For("http").Policy.Base.String(); got != want {
			t.Errorf("%04b: the policy has the base %s, want %s", set, got, want)
		}
		if got := c.Settings().For("other").Policy.Base.String(); got != general {
			t.Errorf("%04b: another type has the base %s, want %s", set, got, general)
		}
	}
}

// A value in the file that is equal to the default is set, and the defaults of the store do not replace it.
func TestAValueEqualToTheDefaultIsSet(t *testing.T) {
	t.Parallel()
	c, _ := load(t, "HOLDFAST_TYPES_HTTP_RETRY_BASE=10s").WithStored(map[string]string{"defaults.retry.base": "2s"})
	if got := c.Settings().For("http").Policy.Base; got != 10*time.Second {
		t.Errorf("the base is %s, want 10s", got)
	}
	code, err := load(t).WithType("http", func(t *holdfast.TypeSettings) error { t.Policy.Base = 10 * time.Second; return nil })
	if err != nil {
		t.Fatal(err)
	}
	c, _ = code.WithStored(map[string]string{"defaults.retry.base": "2s", "defaults.retry.max": "3h", "types.http.timeout": "1m"})
	got := c.Settings().For("http")
	if got.Policy.Base != 10*time.Second || got.Policy.Max != 3*time.Hour || got.Timeout != time.Minute {
		t.Errorf("the settings of the program with those of the store are %+v", got)
	}
	if entry, _ := c.TaskEntry("types.http.retry.base"); entry.Origin != configs.CodeOrigin {
		t.Errorf("the origin is %q", entry.Origin)
	}
}

// A program can set a setting to either of its two values.
func TestAProgramSetsAtMostOnce(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		code, err := load(t).WithType("http", func(t *holdfast.TypeSettings) error { t.Policy.AtMostOnce = once; return nil })
		if err != nil {
			t.Fatal(err)
		}
		c, _ := code.WithStored(map[string]string{"defaults.at_most_once": fmt.Sprint(!once), "types.mail.at_most_once": "true"})
		if got := c.Settings(); got.For("http").Policy.AtMostOnce != once || !got.For("mail").Policy.AtMostOnce {
			t.Errorf("the program sets %t: http has %+v, mail has %+v", once, got.For("http").Policy, got.For("mail").Policy)
		}
		entries := c.TaskEntries(false)
		if i := slices.IndexFunc(entries, func(e configs.Entry) bool { return e.Key == "types.http.at_most_once" }); i < 0 || entries[i].Origin != configs.CodeOrigin {
			t.Errorf("the program sets %t: the entries are %+v", once, entries)
		}
	}
	if _, err := configs.StoredValue("types.mail.at_most_once", "yes"); err == nil {
		t.Error("yes is accepted, want true or false")
	}
}

// TestStoredSettingsWithoutEffect has settings that were stored by another build, or by a process with another file.
// They change nothing else.
func TestStoredSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	env := []string{"HOLDFAST_TYPES_HTTP_RETRY_STRATEGY=exponential", "HOLDFAST_TYPES_MAIL_RETRY_STRATEGY=fixed"}
	for name, stored := range map[string]map[string]string{
		"a key of a newer build":      {"defaults.retry.spread": "1"},
		"a value of a newer build":    {"defaults.retry.strategy": "fibonacci"},
		"a setting of a process":      {"worker.lease": "9s"},
		"a value out of range":        {"types.http.retry.jitter": "7"},
		"a type with a bad name":      {"types.a b.timeout": "1s"},
		"a combination":               {"types.http.retry.base": "0s"},
		"a list without delays":       {"types.new.retry.strategy": "list"},
		"defaults that do not fit":    {"defaults.retry.base": "0s"},
		"an empty key":                {"": ""},
		"a prefix":                    {"types.": "", "types..timeout": "1s", "defaults.": "x"},
		"the name of a type in a key": {"types.http": "x"},
	} {
		stored["types.mail.timeout"] = "7s"
		base := load(t, env...)
		c, ignored := base.WithStored(stored)
		if len(ignored) == 0 {
			t.Errorf("%s: nothing is ignored", name)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: the result is not valid: %v", name, err)
		}
		for _, kind := range []string{"http", "mail", "new", "other"} {
			want := base.Settings().For(kind)
			if kind == "mail" {
				want.Timeout = 7 * time.Second
			}
			if got := c.Settings().For(kind); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: type %s has %+v, want %+v", name, kind, got, want)
			}
		}
		for _, e := range c.TaskEntries(true) {
			if e.Origin == configs.StoreOrigin && e.Key != "types.mail.timeout" {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
}

// Defaults in the store may fit all types but one. That type then has the settings of the file.
func TestStoredDefaultsThatDoNotFitOneType(t *testing.T) {
	t.Parallel()
	base := load(t, "HOLDFAST_TYPES_HTTP_RETRY_STRATEGY=exponential")
	c, ignored := base.WithStored(map[string]string{"defaults.retry.strategy": "fixed", "defaults.retry.base": "0s"})
	if len(ignored) != 1 || !strings.HasPrefix(ignored[0].Key, "types.http.") {
		t.Errorf("ignored: %v", ignored)
	}
	if got := c.Settings().For("other").Policy; got.Strategy != holdfast.Fixed || got.Base != 0 {
		t.Errorf("other types have the policy %+v", got)
	}
	if entry, err := c.TaskEntry("types.http.retry.base"); err != nil || entry != (configs.Entry{Key: "types.http.retry.base", Value: "10s", Origin: "default"}) {
		t.Errorf("the type has %+v, %v", entry, err)
	}
}

func TestStoredValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, value, want, problem string }{
		{"defaults.retry.base", " 168h0m0s", "168h", ""},
		{"types.report.monthly.retry.delays", "1m, 10m,1h", "1m,10m,1h", ""},
		{"types.http.max_attempts", "0", "", "must be between 1"},
		{"types.http.queue", "No Queue", "", "lower-case"},
		{"types.http.retry.base", "soon", "", "is not a duration"},
		{"worker.lease", "9s", "", "set worker.lease in its file or HOLDFAST_WORKER_LEASE"},
		{"database.url", "postgres://u:secret@h/d", "", "set database.url in its file or HOLDFAST_DATABASE_URL"},
		{"webhook.secrets.billing", "whsec_secret", "", "is a setting of a process"},
		{"defaults.retry.bas", "1s", "", "did you mean defaults.retry.base?"},
		{"types.http.retry.bas", "1s", "", "did you mean types.http.retry.base?"},
		{"types.a b.timeout", "1s", "", `"a b" must be`},
		{"types", "1s", "", "unknown task setting"},
		{"", "", "", "unknown task setting"},
	} {
		got, err := configs.StoredValue(c.key, c.value)
		if got != c.want || (err != nil) != (c.problem != "") || err != nil && (!errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s=%s: %q, %v; want %q, %s", c.key, c.value, got, err, c.want, c.problem)
		}
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: the error has the value: %v", c.key, err)
		}
	}
}

// webhook.breaker_faults, if it is set, is the number of faults of the type http where no other place has that key. With
// 0, it is the rate, too.
func TestBreakerFaultsOfWebhooks(t *testing.T) {
	t.Parallel()
	const webhook, own, general = "HOLDFAST_WEBHOOK_BREAKER_FAULTS=", "HOLDFAST_TYPES_HTTP_BREAKER_FAULTS=7", "HOLDFAST_DEFAULTS_BREAKER_FAULTS=9"
	stored := map[string]string{"types.http.breaker.faults": "8"}
	for name, test := range map[string]struct {
		env          []string
		stored       map[string]string
		faults, rate int
		origin       string
	}{
		"nothing is set":       {nil, nil, 5, 70, "default"},
		"a number":             {[]string{webhook + "3", general}, nil, 3, 70, "env HOLDFAST_WEBHOOK_BREAKER_FAULTS"},
		"none":                 {[]string{webhook + "0", general}, nil, 0, 0, "env HOLDFAST_WEBHOOK_BREAKER_FAULTS"},
		"defaults alone":       {[]string{general}, nil, 9, 70, "env HOLDFAST_DEFAULTS_BREAKER_FAULTS"},
		"the type has its own": {[]string{webhook + "3", own}, nil, 7, 70, "env HOLDFAST_TYPES_HTTP_BREAKER_FAULTS"},
		"the store":            {[]string{webhook + "0", own}, stored, 8, 0, configs.StoreOrigin},
		"another type":         {[]string{webhook + "3", "HOLDFAST_TYPES_MAIL_TIMEOUT=1m"}, nil, 3, 70, "env HOLDFAST_WEBHOOK_BREAKER_FAULTS"},
		"defaults of the store": {[]string{webhook + "3"}, map[string]string{"defaults.breaker.faults": "8", "defaults.breaker.rate": "60"}, 3, 60,
			"env HOLDFAST_WEBHOOK_BREAKER_FAULTS"},
		"a conflict in the store": {[]string{webhook + "3"}, map[string]string{"types.http.retry.base": "0s"}, 3, 70, "env HOLDFAST_WEBHOOK_BREAKER_FAULTS"},
	} {
		c, _ := load(t, test.env...).WithStored(test.stored)
		rules := c.Settings().For("http").Breaker
		entry, err := c.TaskEntry("types.http.breaker.faults")
		if rules.Faults != test.faults || rules.Rate != test.rate || err != nil || entry.Value != fmt.Sprint(test.faults) || entry.Origin != test.origin {
			t.Errorf("%s: the rules are %+v, and the entry is %+v, %v", name, rules, entry, err)
		}
		if rules = c.Settings().For("mail").Breaker; rules.Rate == 0 {
			t.Errorf("%s: the rules of another type are %+v", name, rules)
		}
	}
}

func TestRatesOfBreakers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"70": "70%", "70%": "70%", "0": "0%", "100%": "100%", "0.7": "not a whole percentage", "101": "between 0% and 100%", "-1%": "between 0% and 100%",
	} {
		got, err := configs.StoredValue("types.http.breaker.rate", text)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
