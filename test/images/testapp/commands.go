package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// terminationLog is where the kubelet's default terminationMessagePath mounts a file.
const terminationLog = "/dev/termination-log"

// arg returns the i-th argument, or the fallback if there are fewer.
func arg(args []string, i int, fallback string) string {
	if i < len(args) {
		return args[i]
	}
	return fallback
}

func signals() chan os.Signal {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	return c
}

func sleep(args []string) error {
	var end <-chan time.Time
	if len(args) > 0 {
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err
		}
		end = time.After(d)
	}
	select {
	case <-end:
	case s := <-signals():
		fmt.Println("signal", s)
	}
	return nil
}

func trap(args []string) error {
	delay, err := time.ParseDuration(arg(args, 0, "0s"))
	if err != nil {
		return err
	}
	var end <-chan time.Time
	for caught := signals(); ; {
		select {
		case <-end:
			return nil
		case s := <-caught:
			fmt.Println("signal", s)
			if s == syscall.SIGTERM && len(args) > 0 {
				end = time.After(delay)
			}
		}
	}
}

func exit(args []string) error {
	code, err := strconv.Atoi(arg(args, 0, "0"))
	if err != nil {
		return err
	}
	if err := sleep([]string{arg(args, 1, "0s")}); err != nil {
		return err
	}
	if message := arg(args, 2, ""); message != "" {
		if err := os.WriteFile(terminationLog, []byte(message), 0o600); err != nil {
			return err
		}
	}
	return exitError(code)
}

func alloc(args []string) error {
	mib, err := strconv.Atoi(arg(args, 0, "1"))
	if err != nil {
		return err
	}
	held := take(mib)
	fmt.Println("allocated", len(held)>>20, "MiB")
	return sleep(nil)
}

// take returns that many MiB of memory, and touches every page.
func take(mib int) []byte {
	b := make([]byte, mib<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b
}

func logLines(args []string) error {
	lines, err := strconv.Atoi(arg(args, 0, "1"))
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(arg(args, 1, "0"))
	if err != nil {
		return err
	}
	for i := 1; i <= lines; i++ {
		w := os.Stdout
		if i%2 == 0 {
			w = os.Stderr
		}
		text := "line " + strconv.Itoa(i)
		if pad := size - len(text) - 1; pad > 0 {
			text += " " + strings.Repeat("x", pad)
		}
		fmt.Fprintln(w, text)
	}
	return nil
}

// floodTick is how often flood writes.
const floodTick = 5 * time.Millisecond

func flood(args []string) error {
	var rate, size, lines int
	for i, into := range []*int{&rate, &size, &lines} {
		n, err := strconv.Atoi(arg(args, i, "0"))
		if err != nil {
			return err
		}
		*into = n
	}
	ended := signals()
	pad := strings.Repeat("x", max(0, size-12))
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	began, written := time.Now(), 0
	for n := 1; lines == 0 || n <= lines; {
		for due := int(time.Since(began).Seconds() * float64(rate)); written < due && (lines == 0 || n <= lines); n++ {
			c, err := fmt.Fprintf(out, "%010d %s\n", n, pad)
			if written += c; err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
		select {
		case <-ended:
			return nil
		case <-time.After(floodTick):
		}
	}
	<-ended
	return nil
}

func write(args []string) error {
	if len(args) < 2 {
		return errors.New("write needs a file and a text")
	}
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, strings.Join(args[1:], " "))
	return errors.Join(err, f.Close())
}

func cat(args []string) error {
	for _, name := range args {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		os.Stdout.Write(b)
	}
	return nil
}

func wait(args []string) error {
	for {
		_, err := os.Stat(arg(args, 0, ""))
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func env([]string) error {
	all := os.Environ()
	slices.Sort(all)
	fmt.Println(strings.Join(all, "\n"))
	return nil
}

func get(args []string) error {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(arg(args, 0, ""))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("answer %s", resp.Status)
	}
	return nil
}
