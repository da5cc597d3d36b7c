package serverurl

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ParameterError is the error for a parameter of a URL.
type ParameterError struct {
	Name    string // "" if it could be a part of a password
	Problem string // the rest of a sentence that begins with the name
}

// Error returns a text like "parameter pgbouncer is a parameter of Prisma".
func (e *ParameterError) Error() string {
	if e.Name == "" {
		return "parameter " + e.Problem
	}
	return "parameter " + e.Name + " " + e.Problem
}

// parameter says how Holdfast treats a parameter of libpq.
type parameter struct {
	values  []string // the valid values; nil if check decides
	check   func(string) bool
	like    string // describes the values that check accepts
	ignored string // why the parameter has no effect; "" if it has one
}

var (
	tlsVersions      = []string{"TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3"}
	protocolVersions = []string{"3.0", "3.2", "latest"}
	off              = []string{"0", "off", "false", "no"}
)

const (
	noGSS        = "this program does not use GSSAPI"
	noOAuth      = "this program does not use OAuth"
	ownKeepalive = "this program has keepalives of its own, of 10 s"
	noRevocation = "this program does not read revocation lists"
)

// libpq has every parameter of libpq. The page docs/configure.md repeats it for users.
var libpq = map[string]parameter{
	"host":                      {},
	"hostaddr":                  {},
	"port":                      {check: ports, like: "a port number, or one for each host"},
	"dbname":                    {},
	"user":                      {},
	"password":                  {},
	"passfile":                  {},
	"connect_timeout":           {check: whole, like: "a number of seconds"}, // 0 or less: the default
	"datestyle":                 {values: []string{"ISO, MDY"}},              // of the server; the driver reads no other form
	"options":                   {},
	"application_name":          {},
	"fallback_application_name": {},
	"client_encoding":           {values: []string{"UTF8", "utf8", "UTF-8", "utf-8", "unicode"}},
	"sslmode":                   {values: []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}},
	"sslnegotiation":            {values: []string{"postgres", "direct"}},
	"sslcert":                   {},
	"sslkey":                    {},
	"sslrootcert":               {},
	"sslsni":                    {values: []string{"0", "1", "off", "on", "false", "true", "no", "yes"}},
	"ssl_min_protocol_version":  {values: tlsVersions},
	"ssl_max_protocol_version":  {values: tlsVersions},
	"min_protocol_version":      {values: protocolVersions},
	"max_protocol_version":      {values: protocolVersions},
	"target_session_attrs":      {values: []string{"any", "read-write", "read-only", "primary", "standby", "prefer-standby"}},
	"load_balance_hosts":        {values: []string{"disable", "random"}},
	"service":                   {},
	"krbsrvname":                {ignored: noGSS},
	"tcp_user_timeout":          {}, // a setting of the server too, which limits the other direction

	"channel_binding":     {ignored: "this program does not use channel binding; sslmode=verify-full protects from a false server"},
	"require_auth":        {ignored: "this program accepts the authentication that the server asks for; sslmode=verify-full protects from a false server"},
	"requirepeer":         {ignored: "this program does not check the owner of a Unix socket"},
	"gssencmode":          {values: []string{"disable", "prefer"}, ignored: noGSS},
	"gsslib":              {ignored: noGSS},
	"gssdelegation":       {ignored: noGSS},
	"keepalives":          {ignored: ownKeepalive},
	"keepalives_idle":     {ignored: ownKeepalive},
	"keepalives_interval": {ignored: ownKeepalive},
	"keepalives_count":    {ignored: ownKeepalive},
	"replication":         {values: off, ignored: "this program makes ordinary connections"},
	"requiressl":          {ignored: "it is obsolete; set sslmode=require"},
	"sslcompression":      {ignored: "PostgreSQL no longer compresses"},
	"sslcertmode":         {values: []string{"disable", "allow"}, ignored: "this program sends a client certificate if the server asks for one"},
	"sslcrl":              {ignored: noRevocation},
	"sslcrldir":           {ignored: noRevocation},
	"sslpassword":         {ignored: "this program reads client keys without a password"},
	"sslkeylogfile":       {ignored: "this program never writes the keys of a connection"},
	"scram_client_key":    {ignored: "this program signs in with the password"},
	"scram_server_key":    {ignored: "this program signs in with the password"},
	"oauth_issuer":        {ignored: noOAuth},
	"oauth_client_id":     {ignored: noOAuth},
	"oauth_client_secret": {ignored: noOAuth},
	"oauth_scope":         {ignored: noOAuth},
}

// more has the parameters that are no parameters of libpq, but that lib/pq reads.
var more = []string{"sslinline", "krbspn", "binary_parameters", "disable_prepared_binary_result", "database"}

//go:embed session_parameters.txt
var sessionText string

// sessionParameters are the names of the parameters of PostgreSQL 13 to 18 that a session can change, in lower case.
var sessionParameters = strings.Fields(strings.ToLower(sessionText))

// parameterForm matches a name that can be shown. Any other text may be a part of a password.
var parameterForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,62}$`)

// Parameter checks a parameter of a URL of PostgreSQL. It returns why a parameter of libpq has no effect, and "" if it
// has one. It returns a *ParameterError if the value is not valid. The name must be a parameter of libpq or a setting
// that a session can change.
func Parameter(name, value string) (ignored string, err error) {
	known, ok := libpq[name]
	switch {
	case ok && known.values != nil && !slices.Contains(known.values, value):
		return "", &ParameterError{name, "must be " + strings.Join(known.values, ", ") + reason(known.ignored)}
	case ok && known.check != nil && !known.check(value):
		return "", &ParameterError{name, "must be " + known.like}
	case ok:
		return known.ignored, nil
	case !parameterForm.MatchString(name):
		return "", &ParameterError{"", "names must be letters, digits and _; write special characters in a password as %XX"}
	case name == "servicefile":
		return "", &ParameterError{name, "is not supported; set the environment variable PGSERVICEFILE"}
	case slices.Contains(more, name), slices.Contains(sessionParameters, strings.ToLower(name)), strings.Contains(name, "."): // of an extension
		return "", nil
	}
	return "", &ParameterError{name, "is neither a parameter of libpq nor a setting of PostgreSQL; remove it" + replacement(name)}
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(", because %s", text)
}

// replacement returns the replacement for a common parameter of another driver.
func replacement(name string) string {
	switch strings.ToLower(name) {
	case "schema", "currentschema":
		return ", and set the schema of the tasks in the configuration"
	case "pool_max_conns", "connection_limit", "max_conns", "maximum_pool_size", "maxpoolsize", "pool_size":
		return ", and set the maximum number of connections in the configuration"
	case "ssl", "usessl", "tls":
		return ", and use sslmode"
	}
	return ""
}

// whole reports whether text is a whole number.
func whole(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

// ports reports whether text is a list of ports. An item may be empty.
func ports(text string) bool {
	for item := range strings.SplitSeq(text, ",") {
		if _, err := strconv.ParseUint(item, 10, 16); err != nil && item != "" {
			return false
		}
	}
	return true
}
