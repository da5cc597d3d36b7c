package pgclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/lib/pq"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/serverurl"
)

// target is the content of a URL: how to connect, and the parameters of a session. These are the standard parameters,
// unless the URL overrides them.
type target struct {
	config     pq.Config
	parameters Parameters
	given      []string // names of the parameters in the URL
}

// parse reads a URL. It logs each parameter that has no effect. Its errors never contain the password.
func parse(address string, log logrus.FieldLogger) (target, error) {
	if address == "" {
		return target{}, holdfast.WithHint(fmt.Errorf("%w: the URL of PostgreSQL is empty", holdfast.ErrInvalid),
			holdfast.Hint{Kind: holdfast.HintSetDatabase, Arg: "postgres://user:password@host/database"})
	}
	invalid := func(err error) error { return fmt.Errorf("%w: the URL of PostgreSQL: %w", holdfast.ErrInvalid, err) }
	if strings.Contains(address, "://") { // lib/pq also accepts a list of parameters, as in host=a dbname=b
		if err := serverurl.CheckPostgres(address, "postgres://user:password@host:port/database"); err != nil {
			return target{}, invalid(err)
		}
	}
	var config pq.Config
	ignored, err := serverurl.WithEnvironment(address, func() (err error) {
		config, err = pq.NewConfig(splitHosts(address))
		return err
	})
	if err != nil {
		if wrong, ok := errors.AsType[*url.Error](err); ok {
			err = wrong.Err // the text of url.Error contains the URL with the password
		}
		return target{}, invalid(err)
	}
	for variable, why := range ignored {
		log.WithFields(logrus.Fields{"variable": variable, "reason": why}).Warn("environment variable of PostgreSQL ignored")
	}
	for _, tls := range []struct {
		variable, parameter string
		version             *pq.SSLProtocolVersion
	}{
		{serverurl.MinTLSVariable, "ssl_min_protocol_version", &config.SSLMinProtocolVersion},
		{serverurl.MaxTLSVariable, "ssl_max_protocol_version", &config.SSLMaxProtocolVersion},
	} {
		if version := os.Getenv(tls.variable); version != "" && !serverurl.Sets(address, tls.parameter) {
			*tls.version = pq.SSLProtocolVersion(version)
		}
	}
	config.BinaryParameters = true // a statement with parameters needs one round trip
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.ApplicationName == "" {
		config.ApplicationName = "holdfast"
	}
	for name, value := range config.Runtime {
		ignored, err := serverurl.Parameter(name, value)
		if err != nil {
			return target{}, invalid(err)
		}
		if ignored != "" {
			log.WithFields(logrus.Fields{"parameter": name, "reason": ignored}).Warn("parameter of the URL of PostgreSQL ignored")
			delete(config.Runtime, name)
		}
	}
	to := target{config: config, parameters: standard.with(config.Runtime), given: slices.Sorted(maps.Keys(config.Runtime))}
	to.config.Runtime = nil
	return to, nil
}

// splitHosts rewrites a URL with several servers that have ports, as in postgres://user@a:5432,b:5433/app. libpq
// accepts such a URL, but lib/pq accepts several servers only in parameters.
func splitHosts(address string) string {
	u, err := url.Parse(address)
	if err != nil || !strings.Contains(u.Host, ",") {
		return address // the caller parses the address next and reports the error
	}
	var hosts, ports []string
	for _, server := range strings.Split(u.Host, ",") {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			host, port = server, "5432"
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	query := u.Query()
	query.Set("host", strings.Join(hosts, ","))
	query.Set("port", strings.Join(ports, ","))
	u.Host, u.RawQuery = "", query.Encode()
	return u.String()
}

// unreachable returns the error for a failed first connection, with a hint.
func unreachable(ctx context.Context, config pq.Config, err error) error {
	address := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	for _, more := range config.Multi {
		address += ", " + net.JoinHostPort(more.Host, strconv.Itoa(int(more.Port)))
	}
	operation := fmt.Sprintf("connect to PostgreSQL at %s, database %q", address, config.Database)
	if errors.Is(err, errCrowded) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	encrypted := isTLSError(err)
	err = Translate(ctx, operation, err)
	if encrypted {
		return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintCheckDatabase,
			Arg: "sslmode, and the certificates that sslrootcert, sslcert and sslkey name,"})
	}
	if errors.Is(err, holdfast.ErrUnavailable) {
		return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintReachDatabase})
	}
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintCheckDatabase, Arg: "user, password, database and sslmode"})
}

// isTLSError reports whether err means that no encrypted connection was possible: one side rejected the certificate of
// the other side, or does not support encryption.
func isTLSError(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if refused, ok := errors.AsType[*net.OpError](err); ok && refused.Op == "remote error" { // a TLS alert of the server
		return true
	}
	return errors.Is(err, pq.ErrSSLNotSupported)
}
