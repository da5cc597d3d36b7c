package configs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
)

// TestProblemsAreNamed checks the error for each kind of invalid key or value. FILE is replaced with the path of the
// file.
func TestProblemsAreNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file  string
		env   string // separated by |
		flags map[string]string
		want  string
	}{
		// unknown keys
		{file: "workr: {lease: 5s}", want: `workr.lease (file FILE): unknown key; did you mean worker.lease?`},
		{file: "database: {uri: x}", want: `database.uri (file FILE): unknown key; did you mean database.url?`},
		{file: "defaults: {retries: 5}", want: `defaults.retries (file FILE): unknown key; did you mean defaults.retry.base?`},
		{file: "types: {a.b: {retry: {bas: 1s}}}", want: `types.a.b.retry.bas (file FILE): unknown key; did you mean types.a.b.retry.base?`},
		{file: "zzzzzzzzzzzz:", want: `zzzzzzzzzzzz (file FILE): unknown key`},
		{file: "database: text", want: `database (file FILE): unknown key`},
		{env: "HOLDFAST_WORKR_LEASE=5s", want: `HOLDFAST_WORKR_LEASE (environment): unknown variable; did you mean HOLDFAST_WORKER_LEASE?`},
		{env: "HOLDFAST_TYPES_HTTP_RETRY_BAS=5s", want: `HOLDFAST_TYPES_HTTP_RETRY_BAS (environment): unknown variable; did you mean HOLDFAST_TYPES_HTTP_RETRY_BASE?`},
		{env: "HOLDFAST_WORKER_LEASE_FILE=/x", want: `HOLDFAST_WORKER_LEASE_FILE (environment): unknown variable; did you mean HOLDFAST_WORKER_LEASE?`},
		{flags: map[string]string{"log-levl": "x"}, want: `--log-levl (flags): unknown flag; did you mean --log-level?`},
		{env: "HOLDFAST_NOTIFY_URL=http://a/|HOLDFAST_NOTIFY_SECRET=x", want: `notify.secret (env HOLDFAST_NOTIFY_SECRET): must be the name of a secret in webhook.secrets`},
		{env: "HOLDFAST_NOTIFY_URL=http://a/|HOLDFAST_NOTIFY_QUEUE=default", want: `notify.queue (env HOLDFAST_NOTIFY_QUEUE): must not be the queue of a task type, because events of it are not announced`},
		{file: "types: {a.b: {queue: x}, a_b: {queue: y}}", env: "HOLDFAST_TYPES_A_B_QUEUE=z",
			want: `HOLDFAST_TYPES_A_B_QUEUE (environment): is ambiguous: it may mean types.a.b.queue or types.a_b.queue; set the keys in the file`},

		// values of the wrong form
		{env: "HOLDFAST_DEFAULTS_RETRY_BASE=1 parsec", want: `defaults.retry.base (env HOLDFAST_DEFAULTS_RETRY_BASE): "1 parsec" is not a duration like 10s or 2h`},
		{file: "worker: {lease: 5}", want: `worker.lease (file FILE): "5" is not a duration like 10s or 2h`},
		{file: "worker: {concurrency: many}", want: `worker.concurrency (file FILE): "many" is not a whole number`},
		{file: "worker: {concurrency: 1.5}", want: `"1.5" is not a whole number`},
		{file: "worker: {concurrency: [1]}", want: `"a list" is not allowed here; give one value`},
		{file: "worker: {concurrency: {a: 1}}", want: `"a map" is not allowed here; give one value`},
		{file: "worker: {queues: {a: 1}}", want: `"a map" is not allowed here; give a list`},
		{file: "worker: {queues: [[a]]}", want: `"a list" is not allowed here; give one value`},
		{file: "worker: {name: 2024-01-01}", want: `is not text or a number; quote it`},
		{file: "defaults: {retry: {factor: two}}", want: `"two" is not a number`},
		{file: "defaults: {retry: {delays: [1s, soon]}}", want: `defaults.retry.delays (file FILE): "soon" is not a duration like 10s or 2h`},
		{file: "webhook: {allow_cidrs: [10.0.0.0/33]}", want: `"10.0.0.0/33" is not a network like 10.1.0.0/16 or fd00::/8`},
		{file: "worker: {presence: yes}", want: `worker.presence (file FILE): "yes" is neither true nor false`},
		{env: "HOLDFAST_WORKER_PRESENCE=1", want: `worker.presence (env HOLDFAST_WORKER_PRESENCE): "1" is neither true nor false`},
		{file: "worker.lease: 5s\nworker: {lease: 6s}", want: `worker.lease (file FILE): is set twice`},

		// values out of range
		{file: "database: {max_conns: 0}", want: `database.max_conns (file FILE): "0" must be between 1 and 10000`},
		{file: "database: {schema: Holdfast}", want: `"Holdfast" is not at most 63 lower-case letters, digits and _`},
		{file: "database: {schema: pg_x}", want: `"pg_x" is not`},
		{file: "amqp: {prefix: amq.x}", want: `"amq.x" is not at most 80 letters`},
		{flags: map[string]string{"log-level": "loud"}, want: `log.level (flag --log-level): "loud" must be trace, debug, info, warn or error`},
		{file: "log: {format: xml}", want: `"xml" must be text or json`},
		{file: "listen: 8480", want: `"8480" is not an address like 127.0.0.1:8480 or :8480`},
		{file: "listen: ':99999'", want: `":99999" must end in a port from 0 to 65535`},
		{file: "roles: [boss]", want: `"boss" must be worker, janitor, api or console`},
		{file: "roles: []", want: `roles (file FILE): must name at least one role`},
		{file: "worker: {concurrency: -1}", want: `"-1" must be between 1 and 100000`},
		{file: "worker: {lease: 10ms}", want: `"10ms" must be between 1s and 1h`},
		{file: "worker: {queues: [A]}", want: `"A" must be 1 to 100 lower-case letters, digits, _ or -`},
		{file: `worker: {name: "a\nb"}`, want: `must be at most 200 bytes of printable text`},
		{file: "worker: {drain_timeout: -1s}", want: `"-1s" must be between 1ms and 87840h`},
		{file: "producer: {max_payload: 0}", want: `"0" must be between 1 and 67108864`},
		{file: "janitor: {keep_done: -1h}", want: `"-1h" must be between 0s and 87840h`},
		{file: "webhook: {retry_statuses: [6xx]}", want: `"6xx" is not an HTTP status like 429 or a class like 5xx`},
		{file: "webhook: {max_response: 65537}", want: `"65537" must be between 1 and 65536`},
		{file: "webhook: {max_retry_after: 0s}", want: `"0s" must be between 1s and 87840h`},
		{file: "defaults: {retry: {strategy: hope}}", want: `"hope" must be exponential, linear, fixed or list`},
		{file: "defaults: {retry: {jitter: 2}}", want: `"2" must be between 0 and 1`},
		{file: "defaults: {retry: {factor: .nan}}", want: `"NaN" must be between 1 and 1000`},
		{file: "defaults: {retry: {factor: 0.5}}", want: `"0.5" must be between 1 and 1000`},
		{file: "defaults: {max_attempts: 0}", want: `"0" must be between 1 and 2147483647`},
		{file: "types: {a: {queue: ''}}", want: `types.a.queue (file FILE): "" must be 1 to 100 lower-case letters`},
		{file: "types: {'a b': {queue: x}}", want: `types.a b (file FILE): "a b" must be 1 to 100 letters, digits or . _ : / -`},

		// values that conflict
		{file: "defaults: {retry: {strategy: list}}", want: `defaults.retry.delays (default): must have at least one delay for the strategy list`},
		{file: "types: {a: {retry: {strategy: list}}}", want: `types.a.retry.delays (default): must have at least one delay for the strategy list`},
		{file: "types: {a: {retry: {base: 0}}}", want: `types.a.retry.base (file FILE): must be more than 0s for the strategy exponential`},

		{env: "AMQP_URL=inproc:,amqp://a/", want: `amqp.urls (env AMQP_URL): must be either inproc: alone or URLs of RabbitMQ`},

		// secrets stay secret
		{env: "DATABASE_URL=mysql://u:pass@h/d", want: `database.url (env DATABASE_URL): the value is not one URL like postgres://user:password@host:5432/name`},
		{env: "AMQP_URL=amqp://ok,pass", want: `amqp.urls (env AMQP_URL): the value is not one URL like amqp://user:password@host:5672/vhost`},
		{env: "DATABASE_URL=postgres://u:pass@h/d?pool_max_conns=4", want: `database.url (env DATABASE_URL): parameter pool_max_conns is neither a parameter of libpq nor a setting of PostgreSQL`},
		{env: "HOLDFAST_DATABASE_DIRECT_URL=postgres://u:pass@h/d?sslmode=on", want: `database.direct_url (env HOLDFAST_DATABASE_DIRECT_URL): parameter sslmode must be disable, `},
		{env: "DATABASE_URL=postgres://u:pass@h/d postgres://u:pass@h2/d", want: `database.url (env DATABASE_URL): the value is not one URL like `},
		{env: "HOLDFAST_DATABASE_DIRECT_URL=postgres://u:pass@h/d postgres://u:pass@h2/d", want: `the value is not one URL like `},
		{env: "AMQP_URL=amqp://u:pass@h1/;amqp://u:pass@h2/", want: `amqp.urls (env AMQP_URL): the value is not one URL like `},
		{env: "AMQP_URL=amqp://u:pass@h1/ amqp://u:pass@h2/", want: `amqp.urls (env AMQP_URL): the value is not one URL like `},
		{env: "DATABASE_URL=sqlite:/a.db;postgres://u:pass@h/d", want: `database.url (env DATABASE_URL): the value is not one URL like `},
		{env: "HOLDFAST_NOTIFY_URL=https://h1/;https://h2/", want: `notify.url (env HOLDFAST_NOTIFY_URL): the value is not one URL like `},
		{env: "HOLDFAST_WEBHOOK_SECRETS_X=pass", want: `webhook.secrets.x (env HOLDFAST_WEBHOOK_SECRETS_X): the value is not whsec_ and the base64 of 24 to 64 bytes`},
		{env: "HOLDFAST_WEBHOOK_SECRETS_X=" + secretA, want: `webhook.secrets.x (env HOLDFAST_WEBHOOK_SECRETS_X): needs the hosts to which it may sign requests; ` +
			`add webhook.secret_hosts.x: [api.example.com], or HOLDFAST_WEBHOOK_SECRET_HOSTS_X=api.example.com`},
		{file: "webhook: {secrets: {x: " + secretA + "}, secret_hosts: {x: []}}", want: `webhook.secrets.x (file FILE): needs the hosts`},
		{file: "webhook: {secret_hosts: {x: ['https://a.example']}}", want: `webhook.secret_hosts.x (file FILE): "https://a.example" is not a host like api.example.com`},
		{file: "webhook: {secret_hosts: {x: 'a.example:0'}}", want: `"a.example:0" must end in a port from 1 to 65535`},
		{file: "webhook: {secret_hosts: {x: '*'}}", want: `"*" is not a host like`},
		{file: "webhook: {secret_hosts: {a_file: a.example}}", want: `has a name that`},
		{file: "webhook: {secret_hosts: {x: {y: 1}}}", want: `is not allowed here; give a list`},
		{env: "HOLDFAST_WEBHOOK_SECRET_HOST_X=a.example", want: `HOLDFAST_WEBHOOK_SECRET_HOST_X (environment): unknown variable`},
		{file: "webhook: {secrets: {x: []}}", want: `webhook.secrets.x (file FILE): the value is empty`},
		{file: "webhook: {secrets: {a_file: " + secretA + "}}", want: `has a name that`},
		{file: "webhook: {secrets: {x: {pass: 1}}}", want: `the value is not allowed here; give a list`},
		{env: "HOLDFAST_WEBHOOK_SECRETS_X_FILE=/none/such", want: `webhook.secrets.x (env HOLDFAST_WEBHOOK_SECRETS_X_FILE): open /none/such: no such file`},
		{env: "HOLDFAST_WEBHOOK_SECRETS_X_FILE=/dev/null", want: `the file /dev/null is empty`},
		{env: "HOLDFAST_DATABASE_URL=postgres://a|HOLDFAST_DATABASE_URL_FILE=EMPTY", want: `is also set by env HOLDFAST_DATABASE_URL; unset one of them`},
	} {
		checkProblem(t, test.file, test.env, test.flags, test.want)
	}
}

func checkProblem(t *testing.T, text, env string, flags map[string]string, want string) {
	t.Helper()
	dir := t.TempDir()
	options := Options{Flags: flags}
	if text != "" {
		options.File = filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(options.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(env, "EMPTY") {
		path := filepath.Join(dir, "url")
		if err := os.WriteFile(path, []byte("postgres://b"), 0o600); err != nil {
			t.Fatal(err)
		}
		env = strings.ReplaceAll(env, "EMPTY", path)
	}
	options.Env = strings.Split(env, "|")
	_, err := Load(options)
	want = strings.ReplaceAll(want, "(file FILE)", "(file "+options.File+")")
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s%s%v\n got %v\nwant %s", text, env, flags, err, want)
		return
	}
	if !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("%v is not an ErrInvalid", err)
	}
	if _, ok := errors.AsType[*Error](err); !ok {
		t.Errorf("%v contains no *Error", err)
	}
	if strings.Contains(strings.ReplaceAll(err.Error(), "password", ""), "pass") {
		t.Errorf("%v contains a secret", err)
	}
	if strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("more than one problem:\n%v", err)
	}
}

func TestAllProblemsAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := load(t, "x: 1\nworker: {lease: y, concurrency: 0}", []string{"HOLDFAST_Y=1"}, map[string]string{"zz": "1"})
	if err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("got %v", err)
	}
}

func TestAnInheritedProblemIsReportedOnce(t *testing.T) {
	t.Parallel()
	_, err := load(t, "defaults: {max_attempts: -1}\ntypes: {a: {queue: x}, b: {queue: y}}", nil, nil)
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestManyProblemsAreCutShort(t *testing.T) {
	t.Parallel()
	_, err := load(t, strings.Repeat("x", 5000)+": 1\n"+manyKeys(2000), nil, nil)
	if err == nil || len(err.Error()) > 20_000 {
		t.Errorf("got %d bytes", len(err.Error()))
	}
}

func manyKeys(n int) string {
	var out strings.Builder
	for i := range n {
		out.WriteString("k" + strings.Repeat("y", i%7) + "_" + strings.Repeat("z", i/7) + ": 1\n")
	}
	return out.String()
}
