package serverurl

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
)

// variables are the environment variables of libpq and the parameters that they set.
var variables = map[string]string{
	"PGHOST": "host", "PGHOSTADDR": "hostaddr", "PGPORT": "port", "PGDATABASE": "dbname", "PGUSER": "user", "PGPASSWORD": "password",
	"PGPASSFILE": "passfile", "PGSERVICE": "service", "PGOPTIONS": "options", "PGAPPNAME": "application_name",
	"PGCONNECT_TIMEOUT": "connect_timeout", "PGCLIENTENCODING": "client_encoding", "PGDATESTYLE": "datestyle",
	"PGSSLMODE": "sslmode", "PGSSLNEGOTIATION": "sslnegotiation", "PGSSLCERT": "sslcert", "PGSSLKEY": "sslkey", "PGSSLROOTCERT": "sslrootcert",
	"PGSSLSNI": "sslsni", "PGSSLMINPROTOCOLVERSION": "ssl_min_protocol_version", "PGSSLMAXPROTOCOLVERSION": "ssl_max_protocol_version",
	"PGMINPROTOCOLVERSION": "min_protocol_version", "PGMAXPROTOCOLVERSION": "max_protocol_version",
	"PGTARGETSESSIONATTRS": "target_session_attrs", "PGLOADBALANCEHOSTS": "load_balance_hosts",
	"PGREQUIREAUTH": "require_auth", "PGCHANNELBINDING": "channel_binding", "PGREQUIREPEER": "requirepeer", "PGGSSENCMODE": "gssencmode",
	"PGGSSLIB": "gsslib", "PGGSSDELEGATION": "gssdelegation", "PGKRBSRVNAME": "krbsrvname", "PGREALM": "krbsrvname",
	"PGREQUIRESSL": "requiressl", "PGSSLCOMPRESSION": "sslcompression", "PGSSLCERTMODE": "sslcertmode", "PGSSLCRL": "sslcrl", "PGSSLCRLDIR": "sslcrldir",
}

// Environment checks the environment variables of PostgreSQL by the rules for the parameters of a URL. It returns the
// names of the variables that have no effect, with the reason. A variable has no effect either if the URL has its
// parameter; it is not checked and not returned then. The error names the first variable whose value is not valid.
func Environment(address string, env []string) (ignored map[string]string, err error) {
	ignored = make(map[string]string)
	given := parametersOf(address)
	for _, pair := range slices.Sorted(slices.Values(env)) {
		variable, value, _ := strings.Cut(pair, "=")
		name := variables[variable]
		if name == "" || value == "" || slices.Contains(given, name) {
			continue
		}
		why, err := Parameter(name, value)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s %s; correct it, unset it, or set %s in the URL", variable, err.(*ParameterError).Problem, name)
		}
		if why != "" {
			ignored[variable] = why
		}
	}
	return ignored, nil
}

// parametersOf returns the names of the parameters that a URL sets. The form with parameters, as in host=a dbname=b, has
// none that this function knows.
func parametersOf(address string) (names []string) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return nil
	}
	for name := range u.Query() {
		names = append(names, name)
	}
	add := func(name string, set bool) {
		if set {
			names = append(names, name)
		}
	}
	_, password := u.User.Password()
	add("password", password)
	add("user", u.User.Username() != "")
	add("host", u.Hostname() != "")
	add("port", u.Port() != "" || strings.Contains(u.Host, ","))
	add("dbname", strings.Trim(u.Path, "/") != "")
	return names
}

var hiding sync.Mutex

// HideEnvironment calls f while the process has no variables of PostgreSQL that have no effect on a URL: those of
// parameters that the URL has, and those that this program ignores. The driver refuses every connection for some of them,
// and reads the environment without a way to pass another one. f must be short, because other goroutines miss the
// variables meanwhile.
func HideEnvironment(address string, ignored map[string]string, f func()) {
	hiding.Lock()
	defer hiding.Unlock()
	given := parametersOf(address)
	for variable, name := range variables {
		value, set := os.LookupEnv(variable)
		if !set || ignored[variable] == "" && !slices.Contains(given, name) && value != "" {
			continue
		}
		_ = os.Unsetenv(variable) // it fails only for an invalid name
		defer os.Setenv(variable, value)
	}
	f()
}
