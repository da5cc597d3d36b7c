package configs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// load loads a file with the given text, an environment and flags.
func load(t *testing.T, text string, env []string, flags map[string]string) (Config, error) {
	t.Helper()
	options := Options{Env: env, Flags: flags}
	if text != "" {
		options.File = filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(options.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(options)
}

func mustLoad(t *testing.T, text string, env ...string) Config {
	t.Helper()
	c, err := load(t, text, env, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWithoutSourcesAllValuesAreDefaults(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "")
	if !reflect.DeepEqual(c.Entries(), Default().Entries()) {
		t.Errorf("got %v", c.Entries())
	}
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	for key, origin := range c.Origins() {
		if origin != "default" {
			t.Errorf("%s comes from %s", key, origin)
		}
	}
	settings := c.Settings()
	if !reflect.DeepEqual(settings.For("any").Policy, holdfast.DefaultPolicy()) {
		t.Errorf("the default policy is %+v", settings.For("any").Policy)
	}
}

func TestLaterLayersWin(t *testing.T) {
	t.Parallel()
	text := "worker: {concurrency: 1, lease: 6s, name: file}\nlog: {level: debug}"
	env := []string{"HOLDFAST_WORKER_CONCURRENCY=2", "HOLDFAST_WORKER_LEASE=7s", "PATH=/bin", "HOLDFAST_LOG_FORMAT="}
	c, err := load(t, text, env, map[string]string{"worker.concurrency": "3"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"worker.concurrency": "3 flag --worker.concurrency",
		"worker.lease":       "7s env HOLDFAST_WORKER_LEASE",
		"worker.name":        "file file ",
		"log.level":          "debug file ",
		"log.format":         "text default",
	} {
		for _, e := range c.Entries() {
			if got := e.Value + " " + e.Origin; e.Key == key && !strings.HasPrefix(got, want) {
				t.Errorf("%s: got %q, want %q", key, got, want)
			}
		}
	}
	if c.Worker.Concurrency != 3 || c.Worker.Lease != 7*time.Second {
		t.Errorf("got %+v", c.Worker)
	}
}

func TestFlagsMayBeWrittenWithDashes(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", nil, map[string]string{"worker-drain-timeout": "1s", "types.mail.send.queue": "mail", "roles": "janitor"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Worker.DrainTimeout != time.Second || c.Origin("worker.drain_timeout") != "flag --worker-drain-timeout" {
		t.Errorf("got %v from %s", c.Worker.DrainTimeout, c.Origin("worker.drain_timeout"))
	}
	if c.Types["mail.send"].Queue != "mail" {
		t.Errorf("got %+v", c.Types)
	}
	if !c.HasRole(RoleJanitor) || c.HasRole(RoleWorker) {
		t.Errorf("got %v", c.Roles)
	}
}

func TestEveryVariableSetsItsKey(t *testing.T) {
	t.Parallel()
	candidates := []string{"7s", "7", "1", "postgres://u@h/d", "amqp://a,amqp://b", "debug", "json", "linear", ":1", "worker",
		"10.0.0.0/8,fd00::/8", "500,4xx", secretA, "false", "all", "viewer", "http://a/b", "group_returned", "other", "/x", "skip", "7%"}
	for _, v := range Variables() {
		key, name := strings.ReplaceAll(v.Key, "<name>", "thing"), strings.ReplaceAll(v.Name, "<NAME>", "THING")
		var c Config
		var text string
		err := errors.New("no candidate")
		env := []string{""}
		if key == secretsPrefix+"thing" { // a secret also needs hosts
			env = append(env, "HOLDFAST_WEBHOOK_SECRET_HOSTS_THING=a.example")
		}
		if key == "notify.secret" {
			env = append(env, "HOLDFAST_WEBHOOK_SECRET_HOSTS_OTHER=a.example")
		}
		if strings.HasPrefix(key, "api.") { // each of these settings needs others
			for other, value := range map[string]string{"TRUSTED_PROXIES": "10.0.0.0/8", "USER_HEADER": "X-User", "DEFAULT_ROLE": "admin"} {
				if other = "HOLDFAST_API_" + other; other != name {
					env = append(env, other+"="+value)
				}
			}
		}
		for i := 0; err != nil && i < len(candidates); i++ {
			text = candidates[i]
			if strings.HasSuffix(key, "breaker.rate") != strings.HasSuffix(text, "%") { // 7 sets 7%
				continue
			}
			env[0] = name + "=" + text
			c, err = Load(Options{Env: env})
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if origin := c.Origin(key); origin != "env "+name {
			t.Errorf("%s: %s has the origin %s", name, key, origin)
		}
		for _, e := range c.Entries() {
			if e.Key == key && e.Value != text && e.Value != Redacted {
				t.Errorf("%s=%s: %s is %q", name, text, key, e.Value)
			}
			if e.Key != key && e.Origin == "env "+name {
				t.Errorf("%s set %s as well", name, e.Key)
			}
		}
	}
}

func TestWellKnownVariables(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "database: {url: \"postgres://file/x\"}", "DATABASE_URL=postgres://alias/x", "AMQP_URL=amqp://alias")
	if c.Database.URL != "postgres://alias/x" || c.Origin("database.url") != "env DATABASE_URL" || c.AMQP.URLs[0] != "amqp://alias" {
		t.Errorf("got %v %v", c.Database, c.AMQP)
	}
	c = mustLoad(t, "", "DATABASE_URL=postgres://alias/x", "HOLDFAST_DATABASE_URL=postgres://own/x")
	if c.Database.URL != "postgres://own/x" {
		t.Errorf("got %v", c.Database)
	}
}

func TestWithoutServersEverythingIsEmbedded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": true, "DATABASE_URL=sqlite:/tmp/some file.db": true, "DATABASE_URL=postgres://h/d": false} {
		if c := mustLoad(t, "", text); c.Embedded() != want || c.AMQP.URLs[0] != EmbeddedBroker {
			t.Errorf("%q: embedded is %t, the broker %v", text, c.Embedded(), c.AMQP.URLs)
		}
	}
}

func TestForeignVariablesAreIgnored(t *testing.T) {
	t.Parallel()
	mustLoad(t, "", "HOLDFAST_SERVICE_HOST=10.0.0.1", "HOLDFAST_PORT=tcp://10.0.0.1:8480", "HOLDFAST_PORT_8480_TCP_ADDR=10.0.0.1",
		"HOLDFAST_WORKER_SERVICE_PORT_HTTP=1", "HOLDFAST_TEST_X=1", "HOLDFAST_STATE=/x", "HOLDFASTER=1", "WORKER_LEASE=x")
}

func TestTheFileMayComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, []byte("log.level: warn"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{Env: []string{FileVariable + "=" + path}})
	if err != nil || c.Log.Level != "warn" || c.Origin("log.level") != "file "+path {
		t.Errorf("got %v, %v", c.Log, err)
	}
}

func TestATypeInheritsWhatItDoesNotSet(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
defaults: {max_attempts: 4, retry: {base: 1s, delays: [1s]}}
types:
  report.monthly: {timeout: 2h, retry: {base: 1m}}
  Mail-Send: {}
`, "HOLDFAST_DEFAULTS_QUEUE=slow", "HOLDFAST_TYPES_REPORT_MONTHLY_RETRY_MAX=3m", "HOLDFAST_TYPES_MAIL_SEND_QUEUE=mail",
		"HOLDFAST_TYPES_NEW_ONE_MAX_CRASHES=2")
	settings := c.Settings()
	report := settings.For("report.monthly")
	if report.Timeout != 2*time.Hour || report.Policy.Base != time.Minute || report.Policy.Max != 3*time.Minute ||
		report.Policy.MaxAttempts != 4 || report.Queue != "slow" || report.Policy.Factor != 2.5 {
		t.Errorf("got %+v", report)
	}
	if settings.For("Mail-Send").Queue != "mail" || settings.For("new_one").Policy.MaxCrashes != 2 || len(settings.Types) != 3 {
		t.Errorf("got %+v", settings.Types)
	}
	for key, want := range map[string]string{
		"types.report.monthly.queue":        "env HOLDFAST_DEFAULTS_QUEUE",
		"types.report.monthly.retry.max":    "env HOLDFAST_TYPES_REPORT_MONTHLY_RETRY_MAX",
		"types.report.monthly.retry.factor": "default",
	} {
		if got := c.Origin(key); got != want {
			t.Errorf("%s comes from %s, want %s", key, got, want)
		}
	}
	if origin := c.Origin("types.Mail-Send.max_attempts"); !strings.HasPrefix(origin, "file ") {
		t.Errorf("an inherited value comes from %s", origin)
	}
}

func TestKeysMayBeWrittenWithDots(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "worker.lease: 9s\ntypes.a.b.queue: x\nlog:\n")
	if c.Worker.Lease != 9*time.Second || c.Types["a.b"].Queue != "x" {
		t.Errorf("got %+v", c)
	}
}

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G"
	secretB = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(secretB+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, "webhook: {secrets: {Billing: ["+secretA+", "+secretB+"]}, secret_hosts: {Billing: ['*.example.com', '[::1]:8080']}}",
		"HOLDFAST_WEBHOOK_SECRETS_OPS_FILE="+path, "HOLDFAST_WEBHOOK_SECRETS_TWO="+secretA+" "+secretB,
		"HOLDFAST_WEBHOOK_SECRET_HOSTS_OPS=a.example", "HOLDFAST_WEBHOOK_SECRET_HOSTS_TWO=a.example, b.example:8443",
		"HOLDFAST_WEBHOOK_SECRET_HOSTS_NO_KEY=c.example")
	want := map[string][]string{"Billing": {secretA, secretB}, "ops": {secretB}, "two": {secretA, secretB}}
	if !reflect.DeepEqual(c.Webhook.Secrets, want) {
		t.Errorf("got %v", c.Webhook.Secrets)
	}
	hosts := map[string][]string{"Billing": {"*.example.com", "[::1]:8080"}, "ops": {"a.example"}, "two": {"a.example", "b.example:8443"}, "no_key": {"c.example"}}
	if !reflect.DeepEqual(c.Webhook.SecretHosts, hosts) {
		t.Errorf("got %v", c.Webhook.SecretHosts)
	}
	c = mustLoad(t, "webhook: {secrets: {Billing: "+secretA+"}}", "HOLDFAST_WEBHOOK_SECRETS_BILLING="+secretB, "HOLDFAST_WEBHOOK_SECRET_HOSTS_BILLING=a.example")
	if !reflect.DeepEqual(c.Webhook.Secrets, map[string][]string{"Billing": {secretB}}) {
		t.Errorf("got %v", c.Webhook.Secrets)
	}
	for _, e := range c.Entries() {
		if strings.Contains(e.Value, secretB[6:]) {
			t.Errorf("%s contains a secret: %s", e.Key, e.Value)
		}
	}
}

func TestAURLFromAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte("postgres://u:p@h/d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, "", "HOLDFAST_DATABASE_URL_FILE="+path, "DATABASE_URL=postgres://other/x")
	if c.Database.URL != "postgres://u:p@h/d" || c.Origin("database.url") != "env HOLDFAST_DATABASE_URL_FILE" {
		t.Errorf("got %v from %s", c.Database.URL, c.Origin("database.url"))
	}
}

func TestAFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	if _, err := Load(Options{File: filepath.Join(t.TempDir(), "none.yaml")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for text, want := range map[string]string{
		"a: [":                              "read configuration",
		"worker: {lease: 5s}\n---\nlog: {}": "more than one YAML document",
		"just text":                         "read configuration",
		"log: {level: info}\nlog: {level: debug}": "already defined",
		strings.Repeat("#", MaxFile+1):            "larger than 1048576 bytes",
	} {
		_, err := load(t, text, nil, nil)
		if err == nil || !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", text, err, want)
		}
	}
}

// An empty address disables the endpoints. Empty variables of other settings are treated as not set.
func TestAnEmptyListenVariableDisablesTheEndpoints(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "listen: 127.0.0.1:1", "HOLDFAST_LISTEN=", "HOLDFAST_LOG_LEVEL=")
	if c.Listen != "" || c.Origin("listen") != "env HOLDFAST_LISTEN" || c.Log.Level != Default().Log.Level {
		t.Errorf("listen is %q from %s, the level is %q", c.Listen, c.Origin("listen"), c.Log.Level)
	}
}
