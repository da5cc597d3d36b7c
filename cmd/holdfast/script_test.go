package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfastq/holdfast/workshop/slow"
)

// timeoutVariable is the environment variable with which a script sets brokerTimeout in its commands.
const timeoutVariable = "BROKER_TIMEOUT"

// program is the name of the program in the scripts.
const program = "holdfast"

// TestMain runs the program if the binary is started under its name, as testscript.Main does. But testscript.Main would
// also make holdfast a command of the scripts that starts a process.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == program {
		if limit, err := time.ParseDuration(os.Getenv(timeoutVariable)); err == nil {
			brokerTimeout = limit
		}
		main()
		return
	}
	brokerTimeout = slow.Times(brokerTimeout)
	version = buildVersion(version, debug.ReadBuildInfo)
	os.Exit(withProgram(m.Run))
}

// withProgram calls run while the program is in a folder of the PATH.
func withProgram(run func() int) int {
	folder, err := os.MkdirTemp("", "holdfast-test")
	if err == nil {
		defer os.RemoveAll(folder)
		err = copyProgram(filepath.Join(folder, program))
	}
	if err == nil {
		err = os.Setenv("PATH", folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}

// copyProgram copies the test binary.
func copyProgram(to string) error {
	from, err := os.Executable()
	if err != nil || os.Link(from, to) == nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// TestScripts runs the scripts in testdata, and those in testdata/both twice: on servers and on a file. In addition to the
// standard commands, the scripts have:
//
//	holdfast ARGUMENT...       the program. It runs inside the process of the test if that makes no difference, because
//	                           starting a process is slow; exec holdfast always starts one
//	exits CODE COMMAND...      the command ends with this exit code
//	until PATTERN COMMAND...   repeat the command until its stdout matches
//	logged PATTERN FILE        wait until the file has a matching line
//	keep NAME                  store stdout of the last command in $NAME
//	signal TERM|INT|HUP        send a signal to all background commands
//	target                     start an HTTP server at $TARGET: /ok, /gone (410), /hang,
//	                           and /flaky, which answers 503; the file requests lists the
//	                           paths of the requests
//	request LOG METHOD PATH [BODY [HEADER VALUE]...]
//	                           send a request to the process with that log file; stdout is the
//	                           status, a space and the body
//	address LOG NAME           set $NAME to the URL of the process with that log file
//	repair                     make /flaky answer 200
//	postgres                   start a PostgreSQL with default settings for this script, if it
//	                           is installed; the server of make test runs without fsync
//	sql STATEMENT              execute a statement in the schema of the script
//
// Scripts must pass at any speed of the machine. They have these variables, which are larger on a slow machine:
//
//	$PATIENCE                  how long a command waits for an event that must happen
//	$SECOND                    how long something is measured, or a command runs before it is interrupted; a second on
//	                           an idle machine
//
// The condition [slow] is true if slow tests are enabled. [servers] is true if there are servers, but false for a script of
// testdata/both that runs on a file.
func TestScripts(t *testing.T) {
	t.Parallel()
	if !haveServers() {
		t.Log("DATABASE_URL and AMQP_URL are not set: SKIPPING every script that needs servers")
	}
	runScripts(t, "testdata", haveServers(), setUp)
	both := filepath.Join("testdata", "both")
	t.Run("servers", func(t *testing.T) {
		t.Parallel()
		if haveServers() {
			runScripts(t, both, true, setUp)
		}
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		runScripts(t, both, false, setUpFile)
	})
}

func runScripts(t *testing.T, folder string, servers bool, setUp func(*testscript.Env) error) {
	testscript.Run(t, testscript.Params{
		Dir:   folder,
		Setup: setUp,
		Condition: func(condition string) (bool, error) {
			switch condition {
			case "servers":
				return servers, nil
			case "slow":
				return slow.All(), nil
			case "pgbouncer":
				return slow.All() && exec.Command("../../scripts/private-pgbouncer", "version").Run() == nil, nil
			default:
				return false, fmt.Errorf("unknown condition %q", condition)
			}
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			program: scriptHoldfast, "exits": scriptExits, "until": scriptUntil, "logged": scriptLogged, "keep": scriptKeep,
			"signal": scriptSignal, "target": scriptTarget, "repair": scriptRepair, "sql": scriptSQL,
			"postgres": scriptPostgres, "request": scriptRequest, "address": scriptAddress,
		},
	})
}

func haveServers() bool { return os.Getenv("DATABASE_URL") != "" && os.Getenv("AMQP_URL") != "" }

// times are settings whose defaults are too short for a slow machine, or for a target that hangs for a whole script.
func times() map[string]string {
	return map[string]string{
		"HOLDFAST_WORKER_LEASE":         slow.Times(5 * time.Second).String(),
		"HOLDFAST_WORKER_DRAIN_TIMEOUT": slow.Times(25 * time.Second).String(),
		"HOLDFAST_WEBHOOK_TIMEOUT":      (5 * slow.Patience()).String(),
		timeoutVariable:                 brokerTimeout.String(),
		"PATIENCE":                      slow.Patience().String(),
		"SECOND":                        slow.Times(time.Second).String(),
	}
}

// patient returns the address of a PostgreSQL with a longer timeout for connections.
func patient(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Set("connect_timeout", strconv.Itoa(int(slow.Times(30*time.Second).Seconds())))
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// setUpFile gives each script a file of its own.
func setUpFile(env *testscript.Env) error {
	setUpTests(env)
	env.Setenv("DATABASE_URL", "sqlite:"+filepath.Join(env.WorkDir, "app.db"))
	env.Setenv("AMQP_URL", "inproc:")
	return setUpCommands(env)
}

// setUp gives each script a schema and a prefix of its own, if there are servers. After the script it deletes them.
func setUp(env *testscript.Env) error {
	if haveServers() {
		setUpTests(env)
		if err := setUpServers(env); err != nil {
			return err
		}
	}
	return setUpCommands(env)
}

// setUpCommands has the part of setUp that every script needs.
func setUpCommands(env *testscript.Env) error {
	env.Setenv("GORACE", "atexit_sleep_ms=10") // the default delays the end of each command by a second
	for name, value := range times() {
		env.Setenv(name, value)
	}
	scripts, err := filepath.Abs("../../scripts")
	if err != nil {
		return err
	}
	env.Setenv("SCRIPTS", scripts)
	env.Values[environmentKey{}], err = newScriptEnvironment(env.Vars)
	return err
}

// setUpTests makes the attempts few and quick, and permits the command target.
func setUpTests(env *testscript.Env) {
	env.Setenv("HOLDFAST_LISTEN", "127.0.0.1:0")
	env.Setenv("HOLDFAST_WEBHOOK_ALLOW_CIDRS", "127.0.0.0/8")
	env.Setenv("HOLDFAST_DEFAULTS_RETRY_BASE", "20ms")
	env.Setenv("HOLDFAST_DEFAULTS_MAX_ATTEMPTS", "2")
}

// setUpServers is the part of setUp for scripts that use servers.
func setUpServers(env *testscript.Env) error {
	name := fmt.Sprintf("cli_%08x", rand.Uint32())
	database, err := patient(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	env.Setenv("DATABASE_URL", database)
	env.Setenv("AMQP_URL", os.Getenv("AMQP_URL"))
	env.Setenv("HOLDFAST_DATABASE_SCHEMA", name)
	env.Setenv("HOLDFAST_AMQP_PREFIX", name)
	vars := append([]string(nil), env.Vars...)
	env.Defer(func() {
		deleteTopology(vars, env.T().Log)
		if err := execSQL(os.Getenv("DATABASE_URL"), "drop schema if exists "+name+" cascade"); err != nil {
			env.T().Log("drop schema:", err)
		}
	})
	return nil
}

// deleteTopology deletes the queues of a script, given its environment.
func deleteTopology(environment []string, log func(...any)) {
	code, _, _ := run(environment, []string{"topology", "delete", "--yes"})
	if code != exitOK && code != exitCheck { // exitCheck means that there is no schema, and so nothing to delete
		log("topology delete: exit code", code)
	}
}

// scriptPostgres implements the command postgres.
func scriptPostgres(ts *testscript.TestScript, _ bool, _ []string) {
	script := exec.Command("../../scripts/private-postgres", "up")
	folder := ts.MkAbs("postgres")
	ts.Check(os.Mkdir(folder, 0o755))
	script.Env = append(os.Environ(), "RUN="+folder)
	out, err := script.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 3 {
		return // not installed, so DATABASE_URL is not the server of make test either
	}
	ts.Check(err)
	address, err := patient(strings.TrimSpace(string(out)))
	ts.Check(err)
	ts.Setenv("DATABASE_URL", address)
	ts.Defer(func() {
		environment := append(os.Environ(), "DATABASE_URL="+address) // the script may have set the URL of a pooler
		for _, name := range []string{"HOLDFAST_DATABASE_SCHEMA", "HOLDFAST_AMQP_PREFIX"} {
			environment = append(environment, name+"="+ts.Getenv(name))
		}
		deleteTopology(environment, func(line ...any) { ts.Logf("%s", fmt.Sprintln(line...)) })
		wipe := exec.Command("../../scripts/private-postgres", "wipe")
		wipe.Env = script.Env
		ts.Check(wipe.Run())
	})
}

func execSQL(address, statement string) error {
	db, err := sql.Open("postgres", address)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(statement)
	return err
}

func scriptSQL(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(execSQL(ts.Getenv("DATABASE_URL"), "set search_path to "+ts.Getenv("HOLDFAST_DATABASE_SCHEMA")+"; "+strings.Join(args, " ")))
}

func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := execute(ts, args[1:]); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func scriptHoldfast(ts *testscript.TestScript, neg bool, args []string) {
	code := execute(ts, append([]string{program}, args...))
	if failed := code != exitOK; failed != neg {
		ts.Fatalf("exit code %d", code)
	}
}

// execute runs a command, in the process of the test if possible, and returns its exit code.
func execute(ts *testscript.TestScript, line []string) int {
	if environment, ok := within(ts, line); ok {
		code, out, errs := run(environment, line[1:])
		write(ts, out, errs)
		return code
	}
	err := ts.Exec(line[0], line[1:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	ts.Check(err)
	return exitOK
}

// poll calls condition until it returns true, at growing intervals.
func poll(ts *testscript.TestScript, what string, condition func() bool) {
	limit := slow.Patience()
	deadline := time.Now().Add(limit)
	for pause := time.Millisecond; !condition(); pause = min(2*pause, 100*time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("%s was not true within %s", what, limit)
		}
		<-time.After(pause)
	}
}

func scriptUntil(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until PATTERN COMMAND...")
	}
	pattern := regexp.MustCompile(`(?m)` + args[0])
	if environment, ok := within(ts, args[1:]); ok {
		var out, errs []byte
		poll(ts, args[0], func() bool {
			var code int
			code, out, errs = run(environment, args[2:])
			return code == exitOK && pattern.Match(out)
		})
		write(ts, out, errs)
		return
	}
	poll(ts, args[0], func() bool {
		return ts.Exec(args[1], args[2:]...) == nil && pattern.MatchString(ts.ReadFile("stdout"))
	})
}

// elsewhere are the words of commands that need their own process: commands that use a file with a relative path or
// stdin, serve until a signal, or start processes.
var elsewhere = []string{"-", "--jsonl", "--config", "export", "import", "serve", "demo", "edit", "bench"}

// within returns the environment of a command that can run in the process of the test. ok is false if the command may
// use a file with a relative path or stdin, because only a separate process has the folder and the stdin of the script.
//
// A process costs far more processor time than the command, and until repeats commands. So with processes, a script
// would wait longer.
func within(ts *testscript.TestScript, line []string) (environment []string, ok bool) {
	database := ts.Getenv("DATABASE_URL")
	if line[0] != program || !strings.HasPrefix(database, "postgres:") && !strings.HasPrefix(database, "sqlite:/") ||
		ts.Getenv("HOLDFAST_CONFIG") != "" || ts.Getenv("PGOPTIONS") != "" {
		return nil, false
	}
	for _, word := range line {
		if slices.Contains(elsewhere, word) || strings.HasPrefix(word, "@") {
			return nil, false
		}
	}
	return ts.Value(environmentKey{}).(*scriptEnvironment).list(ts), true
}

// scriptEnvironment is the environment of a script. testscript has no function that returns it, so a command prints it.
// The command runs again only after a variable has changed.
type scriptEnvironment struct {
	names  []string // the variables that can change
	values []string // their values when the command ran
	pairs  []string // the output of the command
}

// environmentKey is the key of the scriptEnvironment among the values of a script.
type environmentKey struct{}

func newScriptEnvironment(vars []string) (*scriptEnvironment, error) {
	e := &scriptEnvironment{}
	for _, pair := range vars {
		name, _, _ := strings.Cut(pair, "=")
		e.names = append(e.names, name)
	}
	scripts, err := filepath.Glob("testdata/*.txt")
	both, bothErr := filepath.Glob("testdata/both/*.txt")
	err = errors.Join(err, bothErr)
	for _, script := range append(scripts, both...) {
		text, readErr := os.ReadFile(script)
		err = errors.Join(err, readErr)
		for _, found := range assignment.FindAllStringSubmatch(string(text), -1) {
			e.names = append(e.names, found[1])
		}
	}
	slices.Sort(e.names)
	e.names = slices.Compact(e.names)
	return e, err
}

// assignment matches a line of a script that sets a variable.
var assignment = regexp.MustCompile(`(?m)^(?:\[.*\] )?env (\w+)=`)

func (e *scriptEnvironment) list(ts *testscript.TestScript) []string {
	values := make([]string, len(e.names))
	for i, name := range e.names {
		values[i] = ts.Getenv(name)
	}
	if e.pairs == nil || !slices.Equal(values, e.values) {
		ts.Check(ts.Exec("env"))
		e.values, e.pairs = values, strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	}
	return e.pairs
}

// run runs a command in the process of the test.
func run(environment, args []string) (code int, out, errs []byte) {
	var stdout, stderr bytes.Buffer
	t := &tool{terminal: terminal{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, env: environment}}
	code = t.run(context.Background(), args)
	return code, stdout.Bytes(), stderr.Bytes()
}

// write makes the output of a command available to the script.
func write(ts *testscript.TestScript, out, errs []byte) {
	_, _ = ts.Stdout().Write(out)
	_, _ = ts.Stderr().Write(errs)
}

func scriptLogged(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: logged PATTERN FILE")
	}
	pattern := regexp.MustCompile(`(?m)` + args[0])
	poll(ts, args[0], func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[1]))
		return err == nil && pattern.Match(text)
	})
}

func scriptKeep(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: keep NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func scriptSignal(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": os.Interrupt, "HUP": syscall.SIGHUP}
	if len(args) != 1 || signals[args[0]] == nil {
		ts.Fatalf("usage: signal TERM|INT|HUP")
	}
	for _, command := range ts.BackgroundCmds() {
		ts.Check(command.Process.Signal(signals[args[0]]))
	}
}

// addressLine matches the line with the address of the endpoints in a log, as text or JSON.
var addressLine = regexp.MustCompile(`serving health.* address="?([][0-9.:]+)|"address":"([][0-9.:]+)".*serving health`)

// addressIn waits for the address of the endpoints in a log file and returns their URL on this machine.
func addressIn(ts *testscript.TestScript, file string) string {
	var address string
	poll(ts, "the address in "+file, func() bool {
		text, err := os.ReadFile(ts.MkAbs(file))
		found := addressLine.FindStringSubmatch(string(text))
		if err == nil && found != nil {
			address = found[1] + found[2]
		}
		return address != ""
	})
	return "http://127.0.0.1" + address[strings.LastIndex(address, ":"):]
}

func scriptAddress(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: address LOG NAME")
	}
	ts.Setenv(args[1], addressIn(ts, args[0]))
}

func scriptRequest(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: request LOG METHOD PATH [BODY [HEADER VALUE]...]")
	}
	body := ""
	if len(args) > 3 {
		body = args[3]
	}
	request, err := http.NewRequest(args[1], addressIn(ts, args[0])+args[2], strings.NewReader(body))
	ts.Check(err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 4; i+1 < len(args); i += 2 {
		request.Header.Set(args[i], args[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	ts.Check(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", response.StatusCode, strings.TrimSpace(string(text)))
}

// repaired is the name of the file that makes /flaky answer 200.
const repaired = "repaired"

func scriptTarget(ts *testscript.TestScript, _ bool, _ []string) {
	flag := ts.MkAbs(repaired)
	requests, err := os.Create(ts.MkAbs("requests"))
	ts.Check(err)
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(requests, r.URL.RequestURI())
		_, _ = io.Copy(io.Discard, r.Body) // the server detects the end of a connection only after it has read the body
		switch r.URL.Path {
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/hang":
			select {
			case <-r.Context().Done():
			case <-done:
			}
		case "/flaky":
			if _, err := os.Stat(flag); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}))
	ts.Setenv("TARGET", server.URL)
	ts.Defer(func() {
		close(done)
		server.Close()
		ts.Check(requests.Close())
	})
}

func scriptRepair(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(os.WriteFile(ts.MkAbs(repaired), nil, 0o600))
}
