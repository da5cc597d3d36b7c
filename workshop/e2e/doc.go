// Package e2e tests the whole system, on PostgreSQL and RabbitMQ and on a file. The tests run the real program as
// processes, and the real library in the test process. They inject faults and count the requests that targets receive.
package e2e
