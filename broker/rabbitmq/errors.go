package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
)

func unavailable(cause error) error {
	if errors.Is(cause, holdfast.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", holdfast.ErrUnavailable, plain(cause))
}

// plain replaces a driver error by an error with RabbitMQ's reason, so that no driver type leaves this package. If
// there is a hint for that reason, the error contains it.
func plain(err error) error {
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		return err
	}
	reason := errors.New(e.Reason)
	for _, known := range replies {
		if known.text.MatchString(e.Reason) {
			return holdfast.WithHint(reason, known.hint)
		}
	}
	return reason
}

// replies has the hints for the texts of replies. Hints depend on the text, because one code has several causes.
// RabbitMQ reports a limit of connections like a missing virtual host, and a limit of queues like a queue with other
// arguments.
var replies = []struct {
	text *regexp.Regexp
	hint holdfast.Hint
}{
	{regexp.MustCompile(`user connection limit`), limitHint("set_user_limits USER", "max-connections", "close connections of this user")},
	{regexp.MustCompile(`node connection limit`), holdfast.Advice("close connections to this node, or raise connection_max in rabbitmq.conf")},
	{regexp.MustCompile(`connection limit`), limitHint("set_vhost_limits -p VHOST", "max-connections", "close connections to this virtual host")},
	{regexp.MustCompile(`channels opened for user`), limitHint("set_user_limits USER", "max-channels", "close channels of this user")},
	{regexp.MustCompile(`negotiated channel_max|channels opened`), holdfast.Advice("raise channel_max and channel_max_per_node in rabbitmq.conf")},
	{regexp.MustCompile(`queue limit in (vhost|virtual host)`), limitHint("set_vhost_limits -p VHOST", "max-queues", "delete queues of this virtual host")},
	{regexp.MustCompile(`queue limit`), holdfast.Advice("delete queues, or raise cluster_queue_limit in rabbitmq.conf")},
	{regexp.MustCompile(`exchange limit`), holdfast.Advice("delete exchanges, or raise cluster_exchange_limit in rabbitmq.conf")},
	{limitReached, holdfast.Advice("raise that limit of RabbitMQ, or use less of what it limits")},
	{regexp.MustCompile(`vhost .* is down|virtual host .* is down`), holdfast.Advice("read the log of RabbitMQ for the cause, then run: rabbitmqctl restart_vhost -p VHOST")},
	{regexp.MustCompile(`vhost .*not found|virtual host .*not found`), checkHint("the virtual host")},
	{regexp.MustCompile(`access to (vhost|virtual host) .* refused`), holdfast.Advice("give the user access to the virtual host: rabbitmqctl set_permissions -p VHOST USER '.*' '.*' '.*'; or use another user or virtual host")},
	{regexp.MustCompile(`only connect via localhost|loopback`), holdfast.Advice("use a user of your own: the user guest may only connect from the machine of RabbitMQ")},
	{regexp.MustCompile(`(access|configure|write|read|permission)[^:]* refused`), permissionHint},
	{regexp.MustCompile(`larger than (configured )?max`), holdfast.Advice("raise max_message_size in rabbitmq.conf")},
}

// limitReached matches every reply about an exceeded limit.
var limitReached = regexp.MustCompile(`limit.* is reached|reached .*limit`)

// limitHint returns a hint to raise a limit that rabbitmqctl sets.
func limitHint(command, limit, instead string) holdfast.Hint {
	return holdfast.Advice(fmt.Sprintf(`%s, or raise the limit: rabbitmqctl %s '{"%s": N}'`, instead, command, limit))
}

// limited reports whether the error is a reply about an exceeded limit.
func limited(err error) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && limitReached.MatchString(e.Reason)
}

// replied reports whether the error is a reply of RabbitMQ with the given code.
func replied(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && e.Code == code
}

// dialError adds the address and a hint to an error from dialing a node.
func dialError(err error, n node) error {
	if known := plain(err); holdfast.HintOf(known) != (holdfast.Hint{}) {
		return fmt.Errorf("RabbitMQ at %s, user %q: %w", n.addr, n.user, known)
	}
	code := 0
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		code = e.Code
	}
	switch code {
	case amqp.AccessRefused:
		return holdfast.WithHint(fmt.Errorf("RabbitMQ at %s does not accept user %q: %w", n.addr, n.user, plain(err)), checkHint("user, password and virtual host"))
	case amqp.NotAllowed:
		return holdfast.WithHint(fmt.Errorf("RabbitMQ at %s: %w", n.addr, plain(err)), checkHint("the virtual host"))
	}
	hint := holdfast.Hint{Kind: holdfast.HintReachBroker}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		hint = checkHint("the host, and the certificates that cacertfile, certfile and keyfile name,")
	}
	return holdfast.WithHint(fmt.Errorf("cannot connect to RabbitMQ at %s: %w", n.addr, plain(err)), hint)
}

// checkHint returns a hint to check parts of the URL.
func checkHint(parts string) holdfast.Hint {
	return holdfast.Hint{Kind: holdfast.HintCheckBroker, Arg: parts}
}
