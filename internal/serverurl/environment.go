package serverurl

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// variable is an environment variable of libpq.
type variable struct {
	name, parameter string
	// refused means that the driver makes no connection while the variable is set.
	refused bool
}

var variables = []variable{
	{name: "PGHOST", parameter: "host"}, {name: "PGHOSTADDR", parameter: "hostaddr"}, {name: "PGPORT", parameter: "port"},
	{name: "PGDATABASE", parameter: "dbname"}, {name: "PGUSER", parameter: "user"}, {name: "PGPASSWORD", parameter: "password"},
	{name: "PGPASSFILE", parameter: "passfile"}, {name: "PGSERVICE", parameter: "service"}, {name: "PGOPTIONS", parameter: "options"},
	{name: "PGAPPNAME", parameter: "application_name"}, {name: "PGCONNECT_TIMEOUT", parameter: "connect_timeout"},
	{name: "PGCLIENTENCODING", parameter: "client_encoding"}, {name: "PGDATESTYLE", parameter: "datestyle"}, {name: "PGTZ", parameter: "timezone"},
	{name: "PGGEQO", parameter: "geqo"}, {name: "PGSSLMODE", parameter: "sslmode"}, {name: "PGSSLNEGOTIATION", parameter: "sslnegotiation"},
	{name: "PGSSLCERT", parameter: "sslcert"}, {name: "PGSSLKEY", parameter: "sslkey"}, {name: "PGSSLROOTCERT", parameter: "sslrootcert"},
	{name: "PGSSLSNI", parameter: "sslsni"}, {name: MinTLSVariable, parameter: "ssl_min_protocol_version"},
	{name: MaxTLSVariable, parameter: "ssl_max_protocol_version"}, {name: "PGMINPROTOCOLVERSION", parameter: "min_protocol_version"},
	{name: "PGMAXPROTOCOLVERSION", parameter: "max_protocol_version"}, {name: "PGTARGETSESSIONATTRS", parameter: "target_session_attrs"},
	{name: "PGLOADBALANCEHOSTS", parameter: "load_balance_hosts"},

	{name: "PGREQUIREAUTH", parameter: "require_auth", refused: true}, {name: "PGCHANNELBINDING", parameter: "channel_binding", refused: true},
	{name: "PGREQUIREPEER", parameter: "requirepeer", refused: true}, {name: "PGGSSENCMODE", parameter: "gssencmode", refused: true},
	{name: "PGGSSLIB", parameter: "gsslib", refused: true}, {name: "PGGSSDELEGATION", parameter: "gssdelegation", refused: true},
	{name: "PGKRBSRVNAME", parameter: "krbsrvname", refused: true}, {name: "PGREALM", parameter: "krbsrvname", refused: true},
	{name: "PGREQUIRESSL", parameter: "requiressl", refused: true}, {name: "PGSSLCOMPRESSION", parameter: "sslcompression", refused: true},
	{name: "PGSSLCERTMODE", parameter: "sslcertmode", refused: true}, {name: "PGSSLCRL", parameter: "sslcrl", refused: true},
	{name: "PGSSLCRLDIR", parameter: "sslcrldir", refused: true},
}

// The variables of the versions of TLS, which the driver does not read.
const (
	MinTLSVariable = "PGSSLMINPROTOCOLVERSION"
	MaxTLSVariable = "PGSSLMAXPROTOCOLVERSION"
)

// environment guards the environment of the process while WithEnvironment changes it.
var environment sync.Mutex

// WithEnvironment checks the environment variables of PostgreSQL by the rules for the parameters of a URL, and calls parse,
// which reads the URL and the environment with the driver. A variable whose parameter the URL has is not checked and has
// no effect. ignored has the other variables without an effect, with the reason. The error names the first variable whose
// value is not valid, or is that of parse.
//
// The driver makes no connection at all while some variables are set, and it takes no other environment. So
// WithEnvironment removes these variables from the process while it calls parse: those that the driver refuses by name,
// and those that the URL overrides and that are not valid. Other goroutines miss them meanwhile. Usually there are none.
func WithEnvironment(address string, parse func() error) (ignored map[string]string, err error) {
	environment.Lock()
	defer environment.Unlock()
	ignored = make(map[string]string)
	given := parametersOf(address)
	for _, v := range variables {
		value, set := os.LookupEnv(v.name)
		if !set {
			continue
		}
		overridden := slices.Contains(given, v.parameter)
		why, wrong := Parameter(v.parameter, value)
		switch {
		case overridden || value == "":
		case wrong != nil:
			problem := wrong.Error()
			if p, ok := errors.AsType[*ParameterError](wrong); ok {
				problem = p.Problem
			}
			return nil, fmt.Errorf("environment variable %s %s; correct it, unset it, or set %s in the URL", v.name, problem, v.parameter)
		case why != "":
			ignored[v.name] = why
		}
		if v.refused || overridden && (wrong != nil || v.parameter == "timezone" || v.parameter == "geqo") {
			_ = os.Unsetenv(v.name) // it fails only for an invalid name
			defer os.Setenv(v.name, value)
		}
	}
	return ignored, parse()
}

// listName matches the name of a parameter in the form host=a dbname=b.
var listName = regexp.MustCompile(`([a-z_]+)\s*=`)

// parametersOf returns the names of the parameters that a URL, or a list of parameters, sets.
func parametersOf(address string) (names []string) {
	if !strings.Contains(address, "://") {
		for _, match := range listName.FindAllStringSubmatch(address, -1) {
			names = append(names, match[1])
		}
		return names
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil // the caller reports it
	}
	for name := range u.Query() {
		names = append(names, strings.ToLower(name))
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

// Sets reports whether a URL, or a list of parameters, sets a parameter.
func Sets(address, parameter string) bool { return slices.Contains(parametersOf(address), parameter) }
