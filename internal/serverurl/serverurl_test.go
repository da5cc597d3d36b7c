package serverurl_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/internal/serverurl"
)

const like = "postgres://user:password@host/name"

func TestCheckPostgres(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"postgres://u:p@h:5432/d",
		"postgresql://h/d",
		"postgres://u:p%40%23%2F@a:1,b:2/d?target_session_attrs=read-write",
		"postgres://u@[::1]:5432/d",
		"postgres:///d?host=/run/postgresql",
		"postgres://u:p@h/d?sslmode=require&channel_binding=require",
		"postgres://u:p@h/d?gssencmode=disable&keepalives=1&keepalives_idle=30&keepalives_interval=10&keepalives_count=5",
		"postgres://u:p@h/d?sslcrl=/a.crl&require_auth=scram-sha-256&sslcertmode=allow&sslcompression=0",
		"postgres://u:p@h/d?connect_timeout=5&application_name=a&search_path=x&TimeZone=UTC&my.setting=1&work_mem=64MB",
		"postgres://h/d?user=me%40server",
	} {
		if err := serverurl.CheckPostgres(text, like); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"postgres://h/d?pool_max_conns=5":           "parameter pool_max_conns is neither a parameter of libpq nor",
		"postgres://h/d?schema=app":                 "parameter schema is neither",
		"postgres://h/d?pgbouncer=true":             "parameter pgbouncer is neither",
		"postgres://h/d?sslmode=maybe":              "parameter sslmode must be disable, allow",
		"postgres://h/d?connect_timeout=soon":       "parameter connect_timeout must be a number",
		"postgres://h/d?gssencmode=require":         "parameter gssencmode must be disable, prefer",
		"postgres://h/d?replication=database":       "parameter replication must be",
		"postgres://h/d?sslmode=disable&sslmode=no": "parameter sslmode is given more than once",
		"postgres://h/d?servicefile=/x":             "parameter servicefile is not supported; set the environment variable",
		"postgres://h/d?%C3%BC=1":                   "parameter names must be",
	} {
		err := serverurl.CheckPostgres(text, like)
		if _, ok := errors.AsType[*serverurl.ParameterError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"postgres://u:hunter1@a/d;postgres://u:hunter2@b/d", "postgres://u:hunter1@a/d postgres://u:hunter2@b/d",
		"postgres://u:hunter1@a/d|postgres://u:hunter2@b/d", "postgres://u:hunter1@a/d,postgres://u:hunter2@b/d",
		"postgres://u:hunter1@a/d;u:hunter2@b/d", "postgres://u:hunter1@a/d\npostgres://u:hunter2@b/d",
		"postgres://u:12/hunter2@h/d", "postgres://u:12?hunter2@h/d", "postgres://u:12#hunter2@h/d", "postgres://u:1 hunter2@h/d",
		"postgres://h/d?a=1;password=hunter2", "postgres://h/d?password=%zz", "postgres://h/d#x", "mysql://u:hunter2@h/d", "host=h password=hunter2",
		"postgres://h/d?application_name=x,postgres://u:hunter2@h/d",
	} {
		err := serverurl.CheckPostgres(text, like)
		if err == nil || !strings.HasPrefix(err.Error(), "is not one URL like "+like) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		"amqp://u:p@h:5672/v":           true,
		"amqps://h/%2F?heartbeat=5":     true,
		"amqp://u:1@h1/;amqp://u:2@h2/": false,
		"amqp://u:1@h1/;u:2@h2/":        false,
		"amqp://u:1@h1/ amqp://u:2@h2/": false,
		"amqp://u:1@h1/|amqp://u:2@h2/": false,
		"amqp://h1;h2/":                 false,
		"amqp://u:p@h/v\u00a0":          false,
		"http://h/":                     false,
		"amqp:h":                        false,
	} {
		if err := serverurl.Check(text, "amqp://h/", "amqp", "amqps"); (err == nil) != valid {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, valid := range map[string]bool{
		"https://h/@user?to=https://x/a@b": true,
		"https://a/;https://b/":            false,
		"https://a/ b":                     false,
		"https://a/?x=a|b":                 false,
		"ftp://a/":                         false,
	} {
		if err := serverurl.CheckTarget(text, "https://h/", "http", "https"); (err == nil) != valid {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The page lists every parameter of libpq, so that people can find its effect.
func TestThePageHasEveryParameter(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configure.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("parameters.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\t"([a-z_]+)": +\{`).FindAllSubmatch(source, -1)
	if len(names) < 45 {
		t.Fatalf("found only %d parameters", len(names))
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+string(name[1])+"`") {
			t.Errorf("docs/configure.md does not have %s", name[1])
		}
	}
}
