package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
)

func unavailable(cause error) error {
	if errors.Is(cause, holdfast.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", holdfast.ErrUnavailable, plain(cause))
}

// plain replaces a driver error by a plain error with RabbitMQ's reason, so that no driver type leaves this package.
func plain(err error) error {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return errors.New(e.Reason)
	}
	return err
}

// replied reports whether the error is a reply of RabbitMQ with this code.
func replied(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && e.Code == code
}

// dialError adds the address and a hint to an error from dialing a node.
func dialError(err error, n node) error {
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
